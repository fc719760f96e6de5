"""Validation of user-supplied values: types and ranges are checked once, where the values come in.

NumPy and torch scalars and 1-D arrays become Python numbers and lists; instances of subclasses of
builtin types become builtin values. The checks come from the annotations of a dataclass:
`Annotated` bounds, `Literal` choices, tuples, optional values, other dataclasses.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from inspect import isabstract
from operator import attrgetter
from reprlib import Repr
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from annotated_types import Ge, Gt, Interval, Le, Lt

_WORD = 1 << 63
_Limit = tuple[str, Any]
_Convert = Callable[[Any], Any]  # returns the value to store; raises TypeError for a wrong type

LONGEST_NAME = 100  # characters that are compared with known names
LONGEST = 1 << 24  # items of a sequence; a range could have any length without using memory
_OWN = {int, float, bool, str, bytes, list, tuple, dict, NoneType}
ARRAY_LIBRARIES = ("numpy", "torch", "array", "jax", "jaxlib", "cupy", "pandas")


class _Short(Repr):
    """A formatter of one-line reprs that works for every object."""

    def repr1(self, x: Any, level: int) -> str:
        if type(x).__module__ == "builtins":
            return super().repr1(x, level)
        return self.repr_instance(x, level)

    def repr_int(self, x: Any, level: int) -> str:
        # Python refuses to print integers of thousands of digits.
        return super().repr_int(x, level) if x.bit_length() < 1000 else f"<a whole number of {x.bit_length()} bits>"


def short(given: object) -> str:
    """Return a short repr of `given` for messages."""
    return " ".join(_Short().repr(given).split())


def did_you_mean(name: str, known: Iterable[str], start: str = "") -> str:
    """Return the question whether the most similar known name is meant, after `start`; empty if none is similar."""
    near = get_close_matches(name[:LONGEST_NAME], list(known), 1)
    return f"{start}did you mean {near[0]}?" if near else ""


def plain(given: object) -> Any:
    """Return `given` as Python numbers and lists if it is an array or a scalar of a library."""
    if type(given) in _OWN:
        return given
    # Only call the `tolist` of known array libraries, found on the class: instances may lie.
    owner = next((cls for cls in type(given).__mro__ if "tolist" in vars(cls)), None)
    if owner is None or str(owner.__module__).partition(".")[0] not in ARRAY_LIBRARIES:
        return given
    try:
        return cast(Any, given).tolist()
    except (RuntimeError, TypeError, ValueError):  # no data, or a layout without `tolist`
        return given


def listed(given: object) -> list[Any] | tuple[Any, ...] | None:
    """Return the items of a sequence or array; None for anything else, and for text and bytes."""
    items: Any = plain(given)
    if type(items) is list or type(items) is tuple:
        return cast("list[Any] | tuple[Any, ...]", items)
    if not isinstance(items, Sequence) or isinstance(items, str | bytes | bytearray | memoryview):
        return None
    return list(cast(Sequence[Any], items)) if len(cast(Sequence[Any], items)) <= LONGEST else None


def pairs_of(given: object) -> list[Any] | tuple[Any, ...] | None:
    """Return the pairs of a dictionary or the items of a list; None for anything else."""
    return list(cast("dict[Any, Any]", given).items()) if isinstance(given, dict) else listed(given)


def text_of(given: object) -> str | None:
    """Return `given` as a plain `str` if it is text that UTF-8 can encode; None otherwise."""
    given = plain(given)
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


def _truth(given: Any) -> bool:
    given = plain(given)
    if type(given) is not bool:
        raise TypeError
    return given


def _text(given: Any) -> str:
    text = text_of(given)
    if text is None:
        raise TypeError
    return text


def _bytes(given: Any) -> bytes:
    given = plain(given)
    if type(given) is not bytes:
        raise TypeError
    return given


def _nothing(given: Any) -> None:
    if given is not None:
        raise TypeError


def _instance(kind: type) -> _Convert:
    """Return a check for instances of `kind`, or of any subclass if `kind` is abstract."""

    def convert(given: Any) -> Any:
        if not (isinstance(given, kind) if isabstract(kind) else type(given) is kind):
            raise TypeError
        return given

    return convert


def _subclass(kind: type) -> _Convert:
    def convert(given: Any) -> Any:
        if not (isinstance(given, type) and issubclass(given, kind)) or isabstract(given):
            raise TypeError
        return given

    return convert


def _fits(numbers: list[Any] | tuple[Any, ...]) -> bool:
    """Return whether all of these integers fit in a signed 64-bit integer."""
    try:
        array("q", numbers)
    except OverflowError:
        return False
    return True


def _items(item: _Convert, kind: object) -> _Convert:
    def convert(given: Any) -> tuple[Any, ...]:
        many = listed(given)
        if many is None:
            raise TypeError
        if set(map(type, many)) == {kind} and (kind is bytes or (kind is int and _fits(many))):
            return tuple(many)  # vocabularies and prompts: no call for each item
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
            raise TypeError
        return given

    return convert


def _either(ways: list[_Convert]) -> _Convert:
    def convert(given: Any) -> Any:
        for way in ways:
            try:
                return way(given)
            except TypeError:
                continue
        raise TypeError

    return convert


_PLAIN: dict[Any, tuple[str, _Convert]] = {
    int: ("a whole number of 64 bits", _whole),
    float: ("a number", _real),
    bool: ("True or False", _truth),
    str: ("a text that UTF-8 can hold", _text),
    bytes: ("bytes", _bytes),
    NoneType: ("None", _nothing),
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
    if isinstance(hint, type) and is_dataclass(hint):
        return f"a {hint.__name__}", _instance(hint)
    return None


def _reading_of_union(ways: list[tuple[str, _Convert] | None]) -> tuple[str, _Convert] | None:
    """Return the description and converter of a union; None if a member is unchecked."""
    known = [way for way in ways if way is not None]
    if len(known) < len(ways):
        return None
    return " or ".join(words for words, _ in known), _either([way for _, way in known])


def _limits(bound: object) -> Iterator[_Limit]:
    """Yield each limit of a bound as its description and its number."""
    match bound:
        case Ge(ge=limit):
            yield "at least", limit
        case Gt(gt=limit):
            yield "more than", limit
        case Le(le=limit):
            yield "at most", limit
        case Lt(lt=limit):
            yield "less than", limit
        case Interval():
            pairs = (("at least", bound.ge), ("more than", bound.gt), ("at most", bound.le), ("less than", bound.lt))
            yield from ((words, limit) for words, limit in pairs if limit is not None)
        case _:
            return


def limits_of(hint: Any) -> tuple[_Limit, ...]:
    """Return the bounds of a hint, including those of `Annotated[...] | None`."""
    alternatives = (hint,) if get_origin(hint) is Annotated else get_args(hint)
    bounds = [bound for part in alternatives if get_origin(part) is Annotated for bound in get_args(part)[1:]]
    return tuple(limit for bound in bounds for limit in _limits(bound))


@cache
def _checked_fields(cls: type) -> tuple[tuple[str, str, _Convert, tuple[_Limit, ...]], ...]:
    """Return name, description, converter and limits of each field that can be checked."""
    hints = get_type_hints(cls, include_extras=True)
    readings = [(field.name, _reading(hints[field.name])) for field in fields(cls) if field.init]
    return tuple((name, *reading, limits_of(hints[name])) for name, reading in readings if reading is not None)


def _holds(words: str, value: Any, limit: Any) -> bool:
    match words:
        case "at least":
            return value >= limit
        case "more than":
            return value > limit
        case "at most":
            return value <= limit
        case _:
            return value < limit


def check_ranges(value: object) -> None:
    """Check types and ranges of a dataclass's fields; store converted values. NaN always fails.

    Call it in `__post_init__`.

    Args:
        value: The dataclass instance.

    Raises:
        ValueError: For the first wrong field, with class and value.
    """
    cls = type(value)
    for name, words, convert, limits in _checked_fields(cls):
        given = attrgetter(name)(value)
        try:
            converted = convert(given)
        except TypeError:
            raise ValueError(f"{cls.__name__}.{name} must be {words}, got {short(given)}") from None
        if converted is not given:
            object.__setattr__(value, name, converted)
        for bound, limit in limits if converted is not None else ():
            if not _holds(bound, converted, limit):
                raise ValueError(f"{cls.__name__}.{name} must be {bound} {limit}, got {short(given)}")


def wrong_field(value: object) -> str | None:
    """Return name, value and type of the first field of a dataclass that is not exactly of its type; None if there is none."""
    for name, words, convert, _ in _checked_fields(type(value)):
        given = attrgetter(name)(value)
        try:
            exact = type(convert(given)) is type(given)
        except TypeError:
            exact = False
        if not exact:
            return f"{name}={short(given)}: it must be {words.replace('a list', 'a tuple')}"
    return None
