"""The search of a tuner: which sets of options are to answer how many problems next, as a pure function of what is known.

A coarse grid answers a few problems. Round by round, what lies between points of the frontier and around them is tried as
well; once nothing new lies there, sets of options that can add next to nothing to the frontier are dropped, and the others
answer twice as many problems. So most forwards are spent where the frontier is. A search that was broken off goes on from its
answers.
"""

from collections.abc import Callable, Mapping, Sequence as Items
from dataclasses import dataclass, replace
from itertools import pairwise, product
from math import prod
from typing import Any, Protocol

from ..core.options import StrategyOptions, sorted_options
from .frontier import Point, frontier, hypervolume
from .metrics import Answers

Place = tuple[int, ...]  # the index of each option's value
Known = Mapping[StrategyOptions, Items[Answers]]  # sums of each answer, problem by problem from the first on
SURE = 2.0  # standard errors
WORTH = 0.01  # of the area below the frontier: what adds less is dropped
LOWEST = 0.5  # of the best accuracy: what lies below adds nothing


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
        return prod(len(values) for _, values in self.axes)

    def coarse(self, most: int) -> list[Place]:
        """Every n-th value of each option and the last one; n is the least power of 2 that leaves at most `most` places.

        Of many options, the ends of each may be more than that.
        """
        stride = 1
        while True:
            lines = [sorted({*range(0, len(values), stride), len(values) - 1}) for _, values in self.axes]
            if prod(map(len, lines)) <= most or all(len(line) <= 2 for line in lines):
                return list(product(*lines))
            stride *= 2

    def between(self, one: Place, other: Place) -> list[Place]:
        """The places halfway between two, along each option and along all together; none between neighbours."""
        halves = [tuple(sorted({a, (a + b) // 2, b})) for a, b in zip(one, other, strict=True)]
        return [place for place in product(*halves) if place not in (one, other)]


@dataclass(frozen=True, slots=True)
class Budget:
    """`first` problems for every set of options, then twice as many for those that are left, up to `most`.

    Behind the first round, the search takes at most the `share` of the forwards that every set with all problems would take.
    """

    first: int = 25
    most: int = 500
    share: float = 0.2


class Proposals(Protocol):
    """Proposes places to try. It is made anew for each replay of a search, and must then propose the same."""

    def first(self) -> list[Place]:
        """The places of the first round."""
        ...

    def more(self, tried: Mapping[Place, Point]) -> list[Place]:
        """More places, by the figures of those that are tried with the same problems; those seen before count as none."""
        ...


@dataclass(frozen=True, slots=True)
class Bisection:
    """A coarse grid of at most `most` places where that is possible, then what lies around points of the frontier."""

    space: Space
    most: int = 32

    def first(self) -> list[Place]:
        """The coarse grid."""
        return self.space.coarse(self.most)

    def more(self, tried: Mapping[Place, Point]) -> list[Place]:
        """The places halfway between neighbours of the frontier, and halfway to the next values of each option."""
        places = {point.options: place for place, point in tried.items()}
        line = [places[point.options] for point in frontier(tried.values())]
        found = [place for one, other in pairwise(line) for place in self.space.between(one, other)]
        for axis in range(len(self.space.axes)):
            used = sorted({place[axis] for place in tried})
            for place in line:
                found += [(*place[:axis], value, *place[axis + 1 :]) for value in beside(place[axis], used)]
        return found


def beside(value: int, used: Items[int]) -> list[int]:
    """The values halfway between one and the next that are used, on both sides; the next itself where nothing lies between."""
    lower, upper = [each for each in used if each < value], [each for each in used if each > value]
    nearest = [*lower[-1:], *upper[:1]]
    return [other if abs(other - value) == 1 else (other + value) // 2 for other in nearest]


@dataclass(frozen=True, slots=True)
class Round:
    """Sets of options that answer the first `problems`, and those of them that lack answers."""

    problems: int
    tried: tuple[StrategyOptions, ...]
    missing: tuple[StrategyOptions, ...]


def rounds(space: Space, budget: Budget, known: Known, propose: Callable[[Space], Proposals] = Bisection) -> list[Round]:
    """All rounds that follow from what is known; the last one has something missing, unless the search is over."""
    proposals = propose(space)
    places = sorted(set(proposals.first()))
    seen = {*places}
    problems = min(budget.first, budget.most)
    purse = Purse(space.size, budget, known)
    found: list[Round] = []
    while True:
        tried = {space.at(place): place for place in places}
        missing = tuple([options for options in tried if len(known.get(options, ())) < problems])
        found.append(Round(problems, tuple(tried), missing))
        if missing:
            return found
        purse.pay(tried, problems)
        points = points_of(tried, known, problems)
        proposed = proposals.more({tried[point.options]: point for point in points})
        new = sorted({*proposed} - seen)
        if new and purse.affords(len(new) * problems):
            places = sorted({*places, *new})
            seen |= {*new}
            continue
        kept = worthy(points, known)
        problems = purse.reach(kept, problems)
        if not problems:
            return found
        places = sorted(tried[point.options] for point in kept)


class Purse:
    """The forwards that a search has paid for, beside those that it may take."""

    def __init__(self, size: int, budget: Budget, known: Known) -> None:
        self._size, self._budget, self._known = size, budget, known
        self._paid: dict[StrategyOptions, int] = {}  # problems that each set of options has answered
        self._usual = 0.0  # forwards of an answer, over the sets of the first round

    def pay(self, tried: Mapping[StrategyOptions, Place], problems: int) -> None:
        """Note that each set has answered `problems`."""
        self._paid |= dict.fromkeys(tried, problems)
        if not self._usual:
            self._usual = sum(self._each(options, problems) for options in tried) / len(tried)

    @property
    def left(self) -> float:
        """Forwards that may still be taken."""
        whole = self._size * self._budget.most * self._usual
        return self._budget.share * whole - sum(self._each(options, n) * n for options, n in self._paid.items())

    def affords(self, answers: int) -> bool:
        """Whether so many answers with sets of options that were not tried are within the budget."""
        return answers * self._usual <= self.left

    def reach(self, kept: Items[Point], problems: int) -> int:
        """Up to twice as many problems for the points that are left, as many as the budget has; 0 for no more."""
        each = sum(point.sums.forwards_per_answer for point in kept)
        room = int(self.left / each) if each else self._budget.most
        reached = min(2 * problems, self._budget.most, problems + max(0, room))
        return reached if reached > problems else 0

    def _each(self, options: StrategyOptions, problems: int) -> float:
        return Answers.total(self._known[options][:problems]).forwards / problems


def points_of(tried: Mapping[StrategyOptions, Place], known: Known, problems: int) -> list[Point]:
    """The figures of each set of options over the same problems."""
    return [Point(options, Answers.total(known[options][:problems])) for options in tried]


def worthy(points: Items[Point], known: Known) -> list[Point]:
    """The points that may add something to the frontier, the slowest first; at least the most accurate one.

    What a point adds is told with the accuracy that it may have beside its faster neighbour, up to chance.
    """
    lowest = LOWEST * max(point.accuracy for point in points)
    line = frontier(points)
    area = hypervolume(line, accuracy=lowest)

    def added(point: Point, others: Items[Point]) -> float:
        """The area that the point at its best adds below the frontier of others."""
        best = Point(point.options, raised(point.sums, doubt(point, neighbour(point, others), known)))
        return hypervolume([*others, best], accuracy=lowest) - hypervolume(others, accuracy=lowest)

    beside = [point for point in points if point not in line and added(point, line) > WORTH * area]
    kept = sorted([*line, *beside], key=lambda point: (point.speed, -point.accuracy))
    while len(kept) > 1:
        gains = {place: added(point, [*kept[:place], *kept[place + 1 :]]) for place, point in enumerate(kept)}
        least = min(gains, key=gains.__getitem__)
        if gains[least] > WORTH * area:
            break
        del kept[least]
    return kept


def neighbour(point: Point, others: Items[Point]) -> Point:
    """Of other points the slowest that is at least as fast, or else the fastest."""
    faster = [other for other in others if other.speed >= point.speed]
    return min(faster, key=lambda other: other.speed) if faster else max(others, key=lambda other: other.speed)


def doubt(one: Point, other: Point, known: Known) -> float:
    """How far the difference of two accuracies may be off by chance; both have answered the same problems.

    Two problems more are counted, one for each: equal answers to a few problems do not make it sure that all are equal.
    """
    count = one.sums.count
    pairs = zip(known[one.options][:count], known[other.options][:count], strict=True)
    apart = [mine.score - yours.score for mine, yours in pairs]
    mean = sum(apart) / (count + 2)
    squares = (sum(each * each for each in apart) + 2) / (count + 2)
    return SURE * (max(0.0, squares - mean * mean) / (count + 2)) ** 0.5


def raised(sums: Answers, more: float) -> Answers:
    """The sums with an accuracy that is higher by `more`; above 1, too, since the accuracy beside it is in doubt as well."""
    return replace(sums, score=sums.score + more * sums.count)
