"""Range checks of user-given values: one message shape for all of them."""

from collections.abc import Iterator
from functools import cache
from operator import attrgetter
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from annotated_types import Ge, Gt, Interval, Le, Lt

_Limit = tuple[str, Any]


def _limits(bound: object) -> Iterator[_Limit]:
    """The bound as pairs of words and number."""
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


@cache
def _field_limits(cls: type) -> tuple[tuple[str, tuple[_Limit, ...]], ...]:
    """Each bounded field of a dataclass with its limits; `Annotated[...] | None` counts too."""
    found: list[tuple[str, tuple[_Limit, ...]]] = []
    for name, hint in get_type_hints(cls, include_extras=True).items():
        alternatives = (hint,) if get_origin(hint) is Annotated else get_args(hint)
        bounds = [bound for part in alternatives if get_origin(part) is Annotated for bound in get_args(part)[1:]]
        limits = tuple(limit for bound in bounds for limit in _limits(bound))
        if limits:
            found.append((name, limits))
    return tuple(found)


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
    """Raise ValueError naming class, field, bound and value for the first field of `value` out of its annotated range.

    NaN is in no range; None is not checked.
    """
    cls = type(value)
    for name, limits in _field_limits(cls):
        given = attrgetter(name)(value)
        if given is None:
            continue
        for words, limit in limits:
            if not _holds(words, given, limit):
                raise ValueError(f"{cls.__name__}.{name} must be {words} {limit}, got {given!r}")
