"""Wishes of a checkpoint folder about decoding, checked before they are followed. Nothing is imported by a name in a folder."""

from collections.abc import Mapping
from dataclasses import fields
from math import isfinite
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from . import strategies
from .core import Strategy

BLOCK = "bd_size"  # positions of a block that is divided further, an option of checkpoints alone


def check_name(model: str, declared: str) -> None:
    """Raise ValueError unless the strategy that a checkpoint names as its own is known by that name.

    A dotted path is not: it would import a module that the folder may bring. The caller may give one.
    """
    if not strategies.is_known(declared):
        raise ValueError(
            f"{model} asks for decoding_strategy={declared!r}, and a checkpoint may only ask for one of "
            f"{', '.join(strategies.available())}: give decoding_strategy yourself if you trust another one"
        )


def check_options(model: str, options: Mapping[str, Any], chosen: type[Strategy]) -> None:
    """Raise ValueError for options of a checkpoint that no strategy has, or of another type than `chosen` takes."""
    hints = get_type_hints(chosen)
    known = {field.name for name in strategies.own() for field in fields(strategies.load(name))} | set(hints) | {BLOCK}
    for option, value in options.items():
        if option not in known:
            raise ValueError(f"{model} states {option}={value!r}, which no strategy knows: take it out of its config.json")
        if option == BLOCK and not (_fits(value, int) and value > 0):
            raise ValueError(f"{model} states {option}={value!r}, which must be an integer above 0")
        if option in hints and not _fits(value, hints[option]):
            raise ValueError(f"{model} states {option}={value!r}, which must be {_words(hints[option])}")


def _fits(value: object, hint: Any) -> bool:
    """Whether a value from JSON is of a type."""
    if get_origin(hint) in (Union, UnionType):
        return any(_fits(value, part) for part in get_args(hint))
    if get_origin(hint) is Literal:
        return isinstance(value, str | int) and value in get_args(hint)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint) if isinstance(hint, type) else True


def _words(hint: Any) -> str:
    """A type as messages tell it."""
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(map(_words, get_args(hint)))
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(map(repr, get_args(hint)))
    return {int: "an integer", float: "a finite number", bool: "true or false", str: "a text"}.get(hint, str(hint))
