"""Frozen, slotted dataclasses that are quick to make: what a step makes by the dozen.

`dataclass(frozen=True)` assigns each field through `object.__setattr__`, about 0.12 us a field. Here a new instance is filled
while it belongs to an ordinary class of the same slots, and becomes frozen with its last assignment: about a third of the
time. Everything else (equality, hash, repr, pickling, `replace`) is the dataclass's own.
"""

from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from typing import Any, TypeVar, dataclass_transform

_Class = TypeVar("_Class")


@dataclass_transform(frozen_default=True)
def value(cls: type[_Class]) -> type[_Class]:
    """`cls` as a frozen, slotted dataclass. It must have no `__post_init__` and no default factories.

    Its base, if it has one, is a frozen, slotted dataclass too.
    """
    frozen: Any = dataclass(frozen=True, slots=True)(cls)
    named = fields(frozen)
    plain = {"__setattr__": object.__setattr__, "__delattr__": object.__delattr__}
    filling = type(f"{cls.__name__}BeingFilled", frozen.__bases__, {"__slots__": frozen.__slots__, **plain})
    frozen.__init__ = _filler(frozen, filling, [(field.name, field.default) for field in named])
    return frozen


def _filler(frozen: type, filling: type, named: list[tuple[str, Any]]) -> Callable[..., None]:
    """An `__init__` that fills all fields; written out like the dataclass's own, because a loop would cost more."""
    parameters = [name if default is MISSING else f"{name}=_default_{name}" for name, default in named]
    lines = [
        f"def __init__(self, {', '.join(parameters)}):",
        "    _become(self, _filling)",
        *(f"    self.{name} = {name}" for name, _ in named),
        "    self.__class__ = _frozen",
    ]
    scope: dict[str, Any] = {f"_default_{name}": default for name, default in named}
    scope |= {"_become": vars(object)["__class__"].__set__, "_filling": filling, "_frozen": frozen}
    exec("\n".join(lines), scope)
    return scope["__init__"]
