"""Options of a tuner, and its space of values, parsed from `accept_threshold=0.3:0.99`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import count, product
from math import floor, log10, prod
from typing import Annotated, Any

import yaml
from annotated_types import Ge, Interval

from ..core import Config, SamplingParams, Strategy, options_of
from ..core.checks import check_ranges, short
from ..core.options import Options, StrategyOptions, sorted_options, unknown_option
from .options import refused

STEPS = 16  # steps of a range without COUNT
MOST_VALUES = 1000
PRIMES = (2, 3, 5, 7, 11, 13, 17, 19)
OVER = ("accept_threshold=0.3:0.99",)
FORM = "give a range or values, as accept_threshold=0.3:0.99 or buffer_size=1,2,4"


@dataclass(frozen=True, slots=True)
class TuneOptions:
    """Options of a search. Raises ValueError naming field, value and what is allowed."""

    over: tuple[str, ...] = OVER
    """Options to vary, each as NAME=LOW:HIGH, NAME=LOW:HIGH:COUNT or NAME=VALUE,VALUE."""
    problems: Annotated[int, Ge(1)] | None = None
    """Maximum number of problems that each set of options answers in the search; null: half of the
    tasks' problems, at most 200."""
    held_out: Annotated[int, Ge(1)] | None = None
    """Number of later problems, on which the frontier of the search is measured; null: all that are
    left, at most 200."""
    share: Annotated[float, Interval(gt=0.0, le=1.0)] = 0.2
    """Answers of the search, as a share of the answers of all sets of options to all of its
    problems; at least two sets are tried."""
    at_least: Annotated[float, Interval(gt=0.0, le=1.0)] | None = None
    """Choose the fastest set that has this share of the best accuracy; null: the knee of the
    frontier."""
    trials: Annotated[int, Ge(2)] = 100
    """Maximum number of sets of options to try."""
    resume: bool = False
    """Resume the search in the folder of --out."""

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass(frozen=True, slots=True)
class Space:
    """Options with the values of each, numbers in ascending order."""

    axes: tuple[tuple[str, tuple[Any, ...]], ...]

    def at(self, place: Sequence[int]) -> StrategyOptions:
        """Return the set of options at these indexes, one for each option's values."""
        pairs = [(name, values[index]) for (name, values), index in zip(self.axes, place, strict=True)]
        return sorted_options("the space", pairs)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of values of each option."""
        return tuple([len(values) for _, values in self.axes])

    @property
    def size(self) -> int:
        """The number of sets of options."""
        return prod(self.sizes)

    def spread(self, most: int) -> list[StrategyOptions]:
        """Return `most` evenly spread sets of options, or all if there are at most so many.

        Values of one option are evenly spaced from the first to the last. Several options follow
        the Halton sequence (Halton, 1960): each new set lies in one of the largest gaps, so that
        any number of sets covers many values of each option.
        """
        if most >= self.size:
            places: list[tuple[int, ...]] = list(product(*map(range, self.sizes)))
        elif len(self.axes) == 1:
            places = [(round(step * (self.size - 1) / max(1, most - 1)),) for step in range(most)]
        else:
            found: dict[tuple[int, ...], None] = {}
            for number in count(1):
                found[tuple([int(halton(number, base) * size) for base, size in zip(PRIMES, self.sizes, strict=False)])] = None
                if len(found) == most:
                    break
            places = sorted(found)
        return [self.at(place) for place in places]


def halton(number: int, base: int) -> float:
    """Return the fraction whose digits are those of a number in a base, in reverse order."""
    mirrored, share = 0.0, 1.0
    while number:
        number, digit = divmod(number, base)
        share /= base
        mirrored += share * digit
    return mirrored


def space_of(over: Sequence[str], config: Config, strategy: Strategy) -> Space:
    """Return the space of texts NAME=VALUES (`LOW:HIGH`, `LOW:HIGH:COUNT`, or `VALUE,VALUE`).

    Raises ValueError for any other text, and for a value that no request to this engine can have.
    """
    if not over:
        raise ValueError(f"--over names no option: {FORM}")
    axes: dict[str, tuple[Any, ...]] = {}
    for text in over:
        name, _, values = text.partition("=")
        name = name.strip().replace("-", "_")
        if not name or not values.strip():
            raise ValueError(f"--over {short(text)} names no values: {FORM}")
        if name in axes:
            raise ValueError(f"--over names {name} twice: give all of its values at once, with commas")
        axes[name] = values_of(name, values, strategy)
    space = Space(tuple(axes.items()))
    if space.size == 1:
        raise ValueError(f"--over {' '.join(over)} leaves one set of options and nothing to choose: {FORM}")
    if len(axes) > len(PRIMES):
        raise ValueError(f"--over varies {len(axes)} options: give at most {len(PRIMES)}")
    check(space, config, strategy)
    return space


def values_of(name: str, text: str, strategy: Strategy) -> tuple[Any, ...]:
    """Return the values of an option, numbers ascending. Raises ValueError for an invalid text."""
    now = now_of(name, text, strategy)
    if ":" in text:
        values = list(between(name, text, [read(name, end) for end in text.split(":")], whole=isinstance(now, int)))
    else:
        values = [read(name, part) for part in text.strip().removeprefix("[").removesuffix("]").split(",")]
    if isinstance(now, float):
        values = [float(value) if type(value) is int else value for value in values]
    if any(not isinstance(value, bool | int | float | str | None) for value in values):
        raise ValueError(f"--over {name}={short(text)}: values are numbers, words, true or false, one after the other")
    if any(isinstance(value, float) and not abs(value) < float("inf") for value in values):
        raise ValueError(f"--over {name}={short(text)}: values must be finite numbers")
    distinct = list(dict.fromkeys(values))
    if not any(isinstance(value, str | bool | None) for value in distinct):
        distinct.sort()
    if len(distinct) > MOST_VALUES:
        raise ValueError(f"--over {name} has {len(distinct)} values: give at most {MOST_VALUES}")
    return tuple(distinct)


def now_of(name: str, text: str, strategy: Strategy) -> object:
    """Return an option's value. Raises ValueError for a name that no request can set."""
    from ..engine.config import ENGINE_FIELDS

    known = options_of(strategy)
    if name not in known:
        hint = ""
        if name in ENGINE_FIELDS:
            hint = f"it is the engine's, not a request's: tune once for each, with --{name}"
        elif name in [field.name for field in fields(SamplingParams)]:
            hint = f"give it for all requests, as --{name}"
        raise ValueError("--over: " + unknown_option(type(strategy).__name__, name, text, known, hint))
    if isinstance(known[name], Options):
        raise ValueError(f"--over {name}: each rule has different options, so tune once per rule, with --{name}")
    return known[name]


def read(name: str, text: str) -> Any:
    """Return one value. Raises ValueError for a text that is not a value."""
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"--over {name}: {short(text)} is not a value: {FORM}") from error
    if value is None and text.strip() not in ("null", "~"):
        raise ValueError(f"--over {name} has an empty value: {FORM}")
    return value


def between(name: str, text: str, ends: Sequence[Any], *, whole: bool) -> Iterator[float | int]:
    """Yield the values of a range: COUNT values or `STEPS` steps, whole numbers if `whole`."""
    numbers = all(isinstance(end, int | float) and not isinstance(end, bool) for end in ends)
    if not numbers or len(ends) > 3 or not ends[0] < ends[1] or not abs(ends[1] - ends[0]) < float("inf"):
        raise ValueError(f"--over {name}={short(text)}: a range is LOW:HIGH or LOW:HIGH:COUNT, LOW below HIGH")
    count = ends[2] if len(ends) == 3 else STEPS + 1
    if not isinstance(count, int) or not 2 <= count <= MOST_VALUES:
        raise ValueError(f"--over {name}={short(text)}: COUNT must be a whole number from 2 to {MOST_VALUES}")
    low, high = ends[:2]
    width = (high - low) / (count - 1)
    decimals = 1 - floor(log10(width))  # two significant digits of a step
    for step in range(count):
        value = low + step * width
        yield round(value) if whole else round(value, decimals) if 0 < step < count - 1 else ends[step > 0]


def check(space: Space, config: Config, strategy: Strategy) -> None:
    """Raise ValueError for a value that no request can have, alone or with other options."""
    for axis, (name, values) in enumerate(space.axes):
        for index, value in enumerate(values):
            tried: list[StrategyOptions] = [((name, value),)]
            for share in (0.0, 0.5, 1.0):
                place = [round(share * (len(others) - 1)) for _, others in space.axes]
                tried.append(space.at((*place[:axis], index, *place[axis + 1 :])))
            reasons = [refused(config, strategy, SamplingParams(max_tokens=1, strategy_options=each)) for each in tried]
            if all(reasons):
                raise ValueError(f"--over {name}={short(value)}: {reasons[0]}")
