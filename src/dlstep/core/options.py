"""Options: the fields of a strategy and of its rule, in one flat namespace."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from functools import wraps
from inspect import isabstract, signature
from operator import attrgetter, itemgetter
from typing import Any, ClassVar, ParamSpec, TypeVar

from .checks import check_ranges, did_you_mean, listed, pairs_of, plain, short, text_of, whole_numbers
from .faults import described


@dataclass(frozen=True, slots=True)
class Options:
    """Base of strategies and rules, whose fields are options."""

    SWEEP: ClassVar[tuple[str, tuple[Any, ...]] | None] = None
    """Name and values of the option that `dlstep compare` varies; None if it varies none."""

    def __post_init__(self) -> None:
        check_ranges(self)


Value = TypeVar("Value", bound=Options)
Given = ParamSpec("Given")
Result = TypeVar("Result")
StrategyOptions = tuple[tuple[str, Any], ...]  # sorted by name, so that equal options are equal values
MOST_OPTIONS = 1000
_PLAIN = (bool, int, float, str)


def sorted_options(owner: str, given: object) -> StrategyOptions:
    """Return options from a mapping or from (name, value) pairs, sorted by name.

    Raises ValueError for a name that is not a text or is repeated, and for a value that is not a number,
    text, bool, None, rule or list of integers. Lists become tuples, and rule classes become instances.
    """
    pairs = pairs_of(given)
    if pairs is None or len(pairs) > MOST_OPTIONS:
        raise ValueError(f"{owner} must be a mapping of names to values, got {short(given)}")
    kept: dict[str, Any] = {}
    for pair in pairs:
        parts = listed(pair)
        name = text_of(parts[0]) if parts is not None and len(parts) == 2 else None
        if parts is None or name is None:
            raise ValueError(f"{owner} must be a mapping of names to values, got {short(given)}")
        option = _option(f"{owner}[{name!r}]", parts[1])
        if name in kept:
            raise ValueError(f"{owner} sets {name!r} twice")
        kept[name] = option
    return tuple(sorted(kept.items(), key=itemgetter(0)))


def _option(owner: str, given: object) -> Any:
    """Return the stored form of an option's value. Raises ValueError for an invalid value."""
    option: Any = plain(given)
    if isinstance(given, type) and issubclass(given, Options) and not isabstract(given):
        option = by_default(given)
    many = whole_numbers(option)
    if many is not None:
        return many
    if option is None or type(option) in _PLAIN or isinstance(option, Options):
        return option
    raise ValueError(
        f"{owner} must be a number, a text, True, False, None, a rule or a list of whole numbers, got {short(option)}"
    )


def by_default(cls: type[Value]) -> Value:
    """Return an instance with default options. Raises ValueError if one has no default."""
    for field in fields(cls):
        if field.init and field.default is MISSING and field.default_factory is MISSING:
            raise ValueError(f"{cls.__name__}.{field.name} has no default: each option of a strategy or rule needs one")
    value = cls()
    for name, option in options_of(value).items():
        if not isinstance(option, Hashable):
            raise ValueError(f"{cls.__name__}.{name}={short(option)} can change: give a number, a text or a tuple")
    return value


def options_of(value: Options) -> dict[str, Any]:
    """Return every option of `value` by name: its fields, and those of the rules in its fields.

    Args:
        value: A strategy or a rule.
    """
    own = {field.name: attrgetter(field.name)(value) for field in fields(value)}
    held = [options_of(part) for part in own.values() if isinstance(part, Options)]
    return {name: option for part in held for name, option in part.items()} | own


def shown_options(value: Options) -> dict[str, Any]:
    """Return every option of `value` by name, with class names in place of rules."""
    shown = {name: type(part).__name__ if isinstance(part, Options) else part for name, part in options_of(value).items()}
    return dict(sorted(shown.items()))


def with_options(value: Value, options: Mapping[str, Any]) -> Value:
    """Return `value` with some options changed. A new rule is set before its own options are.

    Args:
        value: A strategy or a rule.
        options: New values by name, also of options of the rules in its fields.

    Raises:
        ValueError: For an unknown name or a value out of range.
    """
    if not options:
        return value
    own = {field.name for field in fields(value)}
    direct = {name: option for name, option in options.items() if name in own}
    value = _changed(value, direct) if direct else value
    rest = {name: option for name, option in options.items() if name not in own}
    parts = {name: part for name in own if isinstance(part := attrgetter(name)(value), Options)}
    changed: dict[str, Options] = {}
    for name, part in parts.items():
        if own_options := _pop_options_of(part, rest):
            changed[name] = with_options(part, own_options)
    for name, option in rest.items():
        raise ValueError(unknown_option(type(value).__name__, name, option, options_of(value)))
    return _changed(value, changed) if changed else value


def _pop_options_of(part: Options, rest: dict[str, Any]) -> dict[str, Any]:
    """Remove the options of `part` from `rest`, and return them."""
    known = set(options_of(part))
    # The options of a rule that replaces a rule nested in `part` are known as well.
    for name in known.intersection(rest):
        known.update(options_of(rest[name]) if isinstance(rest[name], Options) else ())
    return {name: rest.pop(name) for name in list(rest) if name in known}


def _changed(value: Value, options: Mapping[str, Any]) -> Value:
    """Return `value` with some fields changed. Turns any error of its class into ValueError."""
    try:
        return replace(value, **options)
    except (ValueError, KeyboardInterrupt):
        raise
    except BaseException as error:  # the boundary of the constructor of a strategy or rule
        raise ValueError(f"{type(value).__name__} cannot have {short(dict(options))}: {described(error)}") from error


def explains(hint: Callable[[str, object], str], owner: str) -> Callable[[Callable[Given, Result]], Callable[Given, Result]]:
    """Return a decorator for a function: unknown keywords raise a TypeError that suggests the right one.

    `hint` returns where a keyword with its value belongs, or an empty text. `owner` is the name of the
    function in messages.
    """

    def decorated(function: Callable[Given, Result]) -> Callable[Given, Result]:
        known = frozenset(signature(function).parameters) - {"self"}

        @wraps(function)
        def checked(*arguments: Given.args, **options: Given.kwargs) -> Result:
            for name in options.keys() - known:
                raise TypeError(unknown_option(owner, name, options[name], known, hint(name, options[name])))
            return function(*arguments, **options)

        return checked

    return decorated


def unknown_option(owner: str, name: str, value: object, known: Iterable[str], hint: str = "") -> str:
    """Return the message for an unknown option, hinting at the nearest name or all names."""
    known = sorted(known)
    hint = hint or did_you_mean(name, known) or f"options are {', '.join(known)}"
    return f"{owner} has no option {short(name)}, but {name[:40]}={short(value)} is given: {hint}"
