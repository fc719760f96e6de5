"""Tokens per second of sets of options at several loads, and the buffer policy for them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, pairwise
from math import hypot
from statistics import median
from time import perf_counter
from typing import Any

from ..core.options import StrategyOptions
from ..engine.buffer_policy import MOST
from ..engine.loader import LoadedEngine
from ..evaluate.answerer_pool import Answering
from ..evaluate.items import Item
from ..evaluate.metrics import Answers

ROUNDS = 2  # answers of a measurement, per live request
LEAST = 8  # minimum number of answers of a measurement
NOISE = 1.4826  # standard deviation / median absolute deviation of normal values
MEDIAN = 1.2533  # standard error of a median / standard error of a mean
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Rate:
    """Tokens per second of a set of options with `live` requests: the median of `each`."""

    options: StrategyOptions
    live: int
    each: tuple[float, ...]

    @property
    def tokens_per_second(self) -> float:
        """The median."""
        return median(self.each)

    @property
    def noise(self) -> float:
        """The standard deviation of one measurement, from the median distance to the median."""
        middle = self.tokens_per_second
        return NOISE * median(abs(each - middle) for each in self.each)

    def is_as_fast_as(self, other: "Rate") -> bool:
        """Return whether this rate is not below `other` by more than a standard error."""
        error = MEDIAN * hypot(self.noise / len(self.each) ** 0.5, other.noise / len(other.each) ** 0.5)
        return self.tokens_per_second >= other.tokens_per_second - error


def rates(
    engine: LoadedEngine,
    items: Mapping[StrategyOptions, Sequence[Item]],
    loads: Sequence[int],
    repeats: int,
    show: Callable[[int], None],
) -> list[Rate]:
    """Return the rate of each set at each load; `show` gets the number of measurements so far.

    Sets are measured in turns, after a first turn that decodes each set once and is not measured.
    """
    places, found = iter(range(1 << 62)), dict[tuple[int, StrategyOptions], list[float]]()
    for live in loads:
        for repeat in range(-1, repeats):
            for options, own in items.items():
                rate = measured(engine, own, live, places)
                if repeat >= 0:
                    found.setdefault((live, options), []).append(rate)
                    show(sum(map(len, found.values())))
    return [Rate(options, live, tuple(each)) for (live, options), each in found.items()]


def measured(
    engine: LoadedEngine, items: Sequence[Item], live: int, places: Iterator[int], clock: Clock = perf_counter
) -> float:
    """Return tokens per second with `live` requests; a request that ends is replaced.

    The first answers are not counted, since their requests begin together; nor are the last ones.
    """
    answering, waiting = Answering(engine), cycle(items)
    wanted = max(LEAST, ROUNDS * live)
    ended, counting, begin = list[int](), False, clock()
    while not counting or len(ended) < wanted:
        while answering.live < live:
            answering.add(next(places), next(waiting))
        ended.extend(len(answered.row["tokens"]) for answered in answering.step()[0])
        if not counting and len(ended) >= live:
            ended.clear()
            counting, begin = True, clock()
    took, tokens = clock() - begin, sum(ended)
    while answering.live:
        answering.step()
    return tokens / took if took > 0 else 0.0


def chosen_at(found: Sequence[Rate], answers: Mapping[StrategyOptions, Answers], at_least: float) -> dict[int, Rate]:
    """Return the fastest set at each load that has `at_least` this share of the best accuracy.

    Of sets that are as fast as the fastest within the noise, the first is chosen.
    """
    best = max(sums.accuracy for sums in answers.values())
    good = [rate for rate in found if answers[rate.options].accuracy >= at_least * best]
    chosen: dict[int, Rate] = {}
    for live in dict.fromkeys(rate.live for rate in good):
        own = [rate for rate in good if rate.live == live]
        fastest = max(own, key=lambda rate: rate.tokens_per_second)
        chosen[live] = next(rate for rate in own if rate.is_as_fast_as(fastest))
    return chosen


def policy_rows(chosen: Mapping[int, Rate]) -> list[dict[str, Any]]:
    """Return the table for `buffer_policy`: options of the load with the nearest ratio."""
    rungs = sorted(chosen.items())
    rows: list[dict[str, Any]] = []
    for (live, rate), (above, other) in pairwise(rungs):
        if rate.options != other.options:
            rows.append({MOST: max(live, int((live * above) ** 0.5)), **dict(rate.options)})
    return [*rows, dict(rungs[-1][1].options)]
