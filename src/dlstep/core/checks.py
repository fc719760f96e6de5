"""Validation of user-supplied values: types and ranges are checked once, where the values enter.

Numbers of other classes, such as NumPy's, become Python numbers, and lists become tuples; arrays and tensors
are refused. The checks come from the annotations of a dataclass:
`Annotated` bounds, `Literal` choices, tuples, optional values, other dataclasses.
"""

import reprlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from inspect import isabstract
from numbers import Integral, Real
from operator import ge, gt, le, lt
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from rpds import HashTrieMap, List

from .errors import Refused

_WORD = 1 << 63
_Limit = tuple[str, Any]
_Convert = Callable[[Any], Any]  # returns the value to store; raises TypeError for a wrong type, ValueError for another choice


Json = dict[str, Any]  # an object of JSON, or of values by name
# In quoted hints, `HashTrieMap[int, int]` means HashTrieMap: the classes of rpds cannot be subscripted at run time.
_SUBSCRIPTED: Json = {"HashTrieMap": defaultdict(lambda: HashTrieMap), "List": defaultdict(lambda: List)}
Fields = Mapping[str, Any]  # by name; only read
Texts = tuple[str, ...]
TableRow = dict[str, str | int | float | None]  # by column
LONGEST_NAME = 100  # characters that are compared with known names
_BOUNDS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}  # by attribute of a bound
_HOLDS: dict[str, Callable[[Any, Any], bool]] = {"at least": ge, "more than": gt, "at most": le, "less than": lt}


def short(given: object) -> str:
    """Return a short repr of a value, for a message.

    Args:
        given: The value.
    """
    return " ".join(reprlib.repr(given).split())


def did_you_mean(name: str, known: Iterable[str], start: str = "") -> str:
    """Return the question whether the most similar known name is meant, after `start`; empty if none is similar."""
    near = get_close_matches(name[:LONGEST_NAME], list(known), 1)
    return f"{start}did you mean {near[0]}?" if near else ""


def plain(given: object) -> Any:
    """Return `given` as an `int` or a `float` if it is a number of another class, such as NumPy's."""
    if type(given) in (int, float, bool, str):
        return given
    if isinstance(given, Integral):
        return int(given)
    return float(given) if isinstance(given, Real) else given


def listed(given: object) -> list[Any] | tuple[Any, ...] | None:
    """Return the items of a sequence; None for anything else, and for text and bytes."""
    if type(given) is list or type(given) is tuple:
        return cast("list[Any] | tuple[Any, ...]", given)
    if not isinstance(given, Sequence) or isinstance(given, str | bytes | bytearray | memoryview):
        return None
    return list(cast(Sequence[Any], given))


def pairs_of(given: object) -> list[Any] | tuple[Any, ...] | None:
    """Return the pairs of a dictionary or the items of a list; None for anything else."""
    return list(cast("dict[Any, Any]", given).items()) if isinstance(given, dict) else listed(given)


def text_of(given: object) -> str | None:
    """Return `given` as a plain `str` if it is text that UTF-8 can encode; None otherwise."""
    if not isinstance(given, str):
        return None
    text = str.__str__(given)  # of an enumeration's member, the value
    return None if any("\ud800" <= letter <= "\udfff" for letter in text) else text


def _whole(given: Any) -> int:
    given = plain(given)
    if type(given) is not int or not -_WORD <= given < 2 * _WORD:
        raise TypeError
    return given


def _real(given: Any) -> float:
    given = plain(given)
    if type(given) is not int and type(given) is not float:
        raise TypeError
    try:
        return float(given) + 0.0  # turns -0.0, which prints differently, into 0.0
    except OverflowError as error:
        raise TypeError from error


def _text(given: Any) -> str:
    text = text_of(given)
    if text is None:
        raise TypeError
    return text


def _instance(kind: type) -> _Convert:
    """Return a check for instances of `kind`, or of any subclass if `kind` is abstract or has no fields."""
    is_base = isabstract(kind) or (is_dataclass(kind) and not fields(kind))

    def convert(given: Any) -> Any:
        if not (isinstance(given, kind) if is_base else type(given) is kind):
            raise TypeError
        return given

    return convert


def _subclass(kind: type) -> _Convert:
    def convert(given: Any) -> Any:
        if not (isinstance(given, type) and issubclass(given, kind)) or isabstract(given):
            raise TypeError
        return given

    return convert


def _items(item: _Convert, kind: object) -> _Convert:
    def convert(given: Any) -> tuple[Any, ...]:
        many = listed(given)
        if many is None:
            raise TypeError
        # Vocabularies and prompts are long, so avoid a call for each item.
        if set(map(type, many)) == {kind} and (kind is bytes or (kind is int and -_WORD <= min(many) <= max(many) < 2 * _WORD)):
            return tuple(many)
        return tuple([item(part) for part in many])

    return convert


_whole_numbers = _items(_whole, int)


def whole_numbers(given: object) -> tuple[int, ...] | None:
    """Return the items of a list of 64-bit integers; None for anything else."""
    try:
        return _whole_numbers(given)
    except TypeError:
        return None


def _chosen(choices: tuple[Any, ...]) -> _Convert:
    def convert(given: Any) -> Any:
        given = plain(given)
        if not any(type(given) is type(choice) and given == choice for choice in choices):
            raise ValueError
        return given

    return convert


_PLAIN: dict[Any, tuple[str, _Convert]] = {
    int: ("a whole number of 64 bits", _whole),
    float: ("a number", _real),
    bool: ("True or False", _instance(bool)),
    str: ("a text that UTF-8 can hold", _text),
    bytes: ("bytes", _instance(bytes)),
    NoneType: ("None", _instance(NoneType)),
}


def _reading(hint: Any) -> tuple[str, _Convert] | None:
    """Return the description and converter of a type hint; None for an unchecked one."""
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _reading(arguments[0])
    if origin is Literal:
        return f"one of {', '.join(map(repr, arguments))}", _chosen(arguments)
    if origin is type and isinstance(arguments[0], type):
        return f"a class derived from {arguments[0].__name__}", _subclass(arguments[0])
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        item = _reading(arguments[0])
        return None if item is None else (f"a list of items that are each {item[0]}", _items(item[1], arguments[0]))
    if origin in (Union, UnionType):
        return _reading_of_union([_reading(argument) for argument in arguments])
    cls: Any = origin or hint
    if isinstance(cls, type) and (is_dataclass(cls) or cls in (HashTrieMap, List)):
        return f"{'an' if cls.__name__[0] in 'AEIOU' else 'a'} {cls.__name__}", _instance(cls)
    return None


def _reading_of_union(ways: list[tuple[str, _Convert] | None]) -> tuple[str, _Convert] | None:
    """Return the description and converter of a union; None if a member is unchecked."""
    known = [way for way in ways if way is not None]

    def convert(given: Any) -> Any:
        for _, way in known:
            with suppress(TypeError, ValueError):
                return way(given)
        return known[0][1](given)

    return (" or ".join([words for words, _ in known]), convert) if len(known) == len(ways) else None


def limits_of(hint: Any) -> tuple[_Limit, ...]:
    """Return the bounds of a hint, including those of `Annotated[...] | None`: each as its description and its number."""
    alternatives = (hint,) if get_origin(hint) is Annotated else get_args(hint)
    stated = [bound for part in alternatives if get_origin(part) is Annotated for bound in get_args(part)[1:]]
    limits = [(words, getattr(bound, name, None)) for bound in stated for name, words in _BOUNDS.items()]
    return tuple([limit for limit in limits if limit[1] is not None])


@cache
def _checked_fields(cls: type) -> tuple[tuple[str, str, _Convert, tuple[_Limit, ...]], ...]:
    """Return name, description, converter and limits of each field that can be checked."""
    own = _SUBSCRIPTED if cls.__module__.startswith(f"{__package__}.") else None
    hints = get_type_hints(cls, localns=own, include_extras=True)
    readings = [(field.name, _reading(hints[field.name])) for field in fields(cls) if field.init]
    return tuple((name, *reading, limits_of(hints[name])) for name, reading in readings if reading is not None)


def check_ranges(value: object) -> None:
    """Check types and ranges of a dataclass's fields; store converted values. NaN always fails.

    Call it in `__post_init__`.

    Args:
        value: The dataclass instance.

    Raises:
        Refused: For the first wrong field, with its value.
    """
    for name, words, convert, limits in _checked_fields(type(value)):
        given = getattr(value, name)
        try:
            converted = convert(given)
        except (TypeError, ValueError) as error:
            code = "invalid_type" if isinstance(error, TypeError) else "invalid_value"
            raise Refused(name, code, f"must be {words}, got {short(given)}") from None
        if converted is not given:
            object.__setattr__(value, name, converted)
        for bound, limit in limits if converted is not None else ():
            if not _HOLDS[bound](converted, limit):
                raise Refused(name, "out_of_range", f"must be {bound} {limit}, got {short(given)}")


def values_of(value: Any) -> Json:
    """Return the fields of a dataclass by name."""
    return {field.name: getattr(value, field.name) for field in fields(value)}


class Checked:
    """Base of dataclasses whose fields are checked when a value is made."""

    __slots__ = ()

    def __post_init__(self) -> None:
        check_ranges(self)


def wrong_field(value: object) -> str | None:
    """Return name, value and type of the first field of a dataclass that is not exactly of its type; None if there is none."""
    for name, words, convert, _ in _checked_fields(type(value)):
        given = getattr(value, name)
        try:
            exact = type(convert(given)) is type(given)
        except (TypeError, ValueError):
            exact = False
        if not exact:
            return f"{name}={short(given)}: it must be {words.replace('a list', 'a tuple')}"
    return None
