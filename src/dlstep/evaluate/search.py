"""The search of a tuner: which sets of options are to answer how many problems next, as a pure function of what is known.

A coarse grid answers a few problems. Then, round by round, what lies between neighbours of the frontier is tried as well; once
nothing new lies there, sets of options that are surely beaten are dropped, and the others answer twice as many problems. So most
forwards are spent where the frontier is. A search that was broken off goes on from its answers.
"""

from collections.abc import Mapping, Sequence as Items
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

from ..core.options import StrategyOptions, sorted_options
from .frontier import Point, frontier
from .metrics import Answers

Place = tuple[int, ...]  # the index of each option's value
Known = Mapping[StrategyOptions, Items[Answers]]  # sums of each answer, problem by problem from the first on
SURE = 2.0  # standard errors


@dataclass(frozen=True, slots=True)
class Space:
    """Options with the values of each, in ascending order."""

    axes: tuple[tuple[str, tuple[Any, ...]], ...]

    def at(self, place: Place) -> StrategyOptions:
        """The options at a place."""
        return sorted_options(
            "the space", [(name, values[index]) for (name, values), index in zip(self.axes, place, strict=True)]
        )

    @property
    def size(self) -> int:
        """How many places there are."""
        count = 1
        for _, values in self.axes:
            count *= len(values)
        return count

    def coarse(self, stride: int) -> list[Place]:
        """Every `stride`-th value of each option, and the last one."""
        lines = [sorted({*range(0, len(values), stride), len(values) - 1}) for _, values in self.axes]
        return list(product(*lines))

    def between(self, one: Place, other: Place) -> list[Place]:
        """The places halfway between two, along each option and along all together; none between neighbours."""
        halves = [tuple(sorted({a, (a + b) // 2, b})) for a, b in zip(one, other, strict=True)]
        return [place for place in product(*halves) if place not in (one, other)]


@dataclass(frozen=True, slots=True)
class Budget:
    """`first` problems for every set of options, then twice as many for those that are left, up to `most`."""

    first: int = 25
    most: int = 500
    stride: int = 4


@dataclass(frozen=True, slots=True)
class Round:
    """Sets of options that answer the first `problems`, and those of them that lack answers."""

    problems: int
    tried: tuple[StrategyOptions, ...]
    missing: tuple[StrategyOptions, ...]


def rounds(space: Space, budget: Budget, known: Known) -> list[Round]:
    """All rounds that follow from what is known; the last one has something missing, unless the search is over."""
    places = space.coarse(budget.stride)
    problems = min(budget.first, budget.most)
    found: list[Round] = []
    while True:
        tried = {space.at(place): place for place in places}
        missing = tuple([options for options in tried if len(known.get(options, ())) < problems])
        found.append(Round(problems, tuple(tried), missing))
        if missing:
            return found
        points = points_of(tried, known, problems)
        new = [place for place in refined(space, [tried[point.options] for point in frontier(points)]) if place not in places]
        if new:
            places = sorted({*places, *new})
        elif problems < budget.most:
            places = sorted(tried[point.options] for point in points if not surely_beaten(point, points))
            problems = min(2 * problems, budget.most)
        else:
            return found


def refined(space: Space, places: Items[Place]) -> list[Place]:
    """The places halfway between neighbours of a frontier, which is in order of speed."""
    return [place for one, other in pairwise(places) for place in space.between(one, other)]


def points_of(tried: Mapping[StrategyOptions, Place], known: Known, problems: int) -> list[Point]:
    """The figures of each set of options over the same problems."""
    return [Point(options, Answers.total(known[options][:problems])) for options in tried]


def surely_beaten(point: Point, points: Items[Point]) -> bool:
    """Whether some point is as fast and more accurate by more than chance would have it."""
    return any(
        other.beats(point, SURE * (other.sums.accuracy_error**2 + point.sums.accuracy_error**2) ** 0.5) for other in points
    )
