"""Which of two ways a function goes: its Triton kernel, on a device that has one, or its twin in plain torch.

The twins define the answers, and name their kernels. A kernel is imported when it is first needed, so that torch alone is
enough elsewhere.
"""

from collections.abc import Callable
from functools import cache, update_wrapper
from importlib import import_module
from importlib.util import find_spec
from typing import Generic, ParamSpec, TypeVar

import torch
from torch import Tensor

P = ParamSpec("P")
R = TypeVar("R")


@cache
def has_kernels(device: torch.device) -> bool:
    """Whether kernels run on `device`: a CUDA device of compute capability 8.0 or more, and triton installed."""
    return device.type == "cuda" and find_spec("triton") is not None and torch.cuda.get_device_capability(device) >= (8, 0)


class Twinned(Generic[P, R]):
    """A function that goes to its kernel where that runs and `suits` what it is given, and to its twin elsewhere."""

    def __init__(self, twin: Callable[P, R], module: str, suits: Callable[P, bool] | None) -> None:
        self.twin, self._module, self._suits = twin, module, suits
        update_wrapper(self, twin)

    @property
    def kernel(self) -> Callable[P, R]:
        """The kernel, which has the twin's name in a module of `gpu`."""
        return getattr(import_module(f".gpu.{self._module}", __package__), self.twin.__name__)

    def __call__(self, *given: P.args, **named: P.kwargs) -> R:
        """The answer of one or the other; the first argument, a tensor, says which device is meant."""
        first = given[0]
        assert isinstance(first, Tensor), "the first argument is a tensor"
        if has_kernels(first.device) and (self._suits is None or self._suits(*given, **named)):
            return self.kernel(*given, **named)
        return self.twin(*given, **named)


def with_kernel(module: str, suits: Callable[P, bool] | None = None) -> Callable[[Callable[P, R]], Twinned[P, R]]:
    """Make a function in plain torch the twin of the kernel of the same name in `gpu.<module>`, for what `suits` allows."""
    return lambda twin: Twinned(twin, module, suits)
