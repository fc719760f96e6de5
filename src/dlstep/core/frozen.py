"""A faster constructor for frozen dataclasses whose values each step creates for every request."""

from dataclasses import MISSING, fields
from typing import Any, TypeVar

Value = TypeVar("Value")


def built_fast(cls: type[Value]) -> type[Value]:
    """Give a frozen dataclass a faster `__init__`: 0.3 us for eight fields instead of 0.8. Return the class.

    The usual `__init__` calls `object.__setattr__` for each field, because the class forbids assignment. This one first
    changes the class of the value to one that has the same slots and allows assignment, and then back.

    Args:
        cls: A class with slots and without `__post_init__`. Its subclasses must be dataclasses, too.
    """
    given = fields(cls)  # pyright: ignore[reportArgumentType] - type variables cannot be bound to dataclasses
    defaults = {field.name: field.default for field in given if field.default is not MISSING}
    parameters = [f"{field.name}=defaults[{field.name!r}]" if field.name in defaults else field.name for field in given]
    signature = ", ".join(["self, *" if given[0].kw_only is True else "self", *parameters])
    lines = ["set_class(self, assignable)", *[f"self.{field.name} = {field.name}" for field in given], "self.__class__ = cls"]
    names: dict[str, Any] = {
        "cls": cls,
        "assignable": type(
            cls.__name__, cls.__bases__, {"__slots__": vars(cls)["__slots__"], "__setattr__": object.__setattr__}
        ),
        "set_class": vars(object)["__class__"].__set__,
        "defaults": defaults,
    }
    exec(f"def __init__({signature}):\n " + "\n ".join(lines), names)
    cls.__init__ = names["__init__"]
    return cls
