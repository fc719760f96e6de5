"""What a call of a kernel's function is compiled for ahead of time."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any


@dataclass(frozen=True)
class Case:
    """A call to compile.

    `quick` cases are compiled by the tests, all of them by `make kernels-aot`. `tensor_cores` are the kernels that must use
    the tensor cores of Hopper in its own way, `spilling` are those that may spill registers. Architectures before `least`
    are left out.
    """

    name: str
    call: Callable[[], object]
    quick: bool = False
    tensor_cores: tuple[str, ...] = ()
    spilling: tuple[str, ...] = ()
    least: int = 80


def case(
    name: str,
    call: Callable[..., object],
    *given: Any,
    quick: bool = False,
    cores: tuple[str, ...] = (),
    least: int = 80,
    **options: Any,
) -> Case:
    """A case that calls a function with these arguments."""
    return Case(name, partial(call, *given, **options), quick, cores, least=least)
