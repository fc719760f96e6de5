"""Frontiers of accuracy against speed: the sets of options that no other set beats in both, and figures of whole curves."""

import math
from collections.abc import Iterable, Sequence as Items
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter

from ..core.options import StrategyOptions
from .metrics import Answers

LARGEST_FALL = 5.0  # in points of accuracy, below the slowest point: points that lie lower do not count for the AUP
FALL_WEIGHT = 3.0  # the exponent of the AUP's weights


@dataclass(frozen=True, slots=True)
class Point:
    """A set of options with its figures: the sums over the problems that it answered."""

    options: StrategyOptions
    sums: Answers

    @property
    def accuracy(self) -> float:
        """The share of right answers."""
        return self.sums.accuracy

    @property
    def speed(self) -> float:
        """Tokens per forward pass, counting all forward passes."""
        return self.sums.tokens_per_forward

    def beats(self, other: "Point", margin: float = 0.0) -> bool:
        """Return whether this point is at least as fast, more accurate by at least `margin`, and not equal in both."""
        if self.speed < other.speed or self.accuracy < other.accuracy + margin:
            return False
        return self.speed > other.speed or self.accuracy > other.accuracy


def frontier(points: Iterable[Point]) -> list[Point]:
    """Return the points that no other point beats, the slowest first; of points with equal figures, only the first."""
    kept: list[Point] = []
    for point in sorted(points, key=lambda point: (-point.speed, -point.accuracy)):
        if not kept or point.accuracy > kept[-1].accuracy:
            kept.append(point)
    return kept[::-1]


def hypervolume(points: Iterable[Point], *, speed: float = 0.0, accuracy: float = 0.0) -> float:
    """Return the area between the frontier and a reference point; points that do not exceed it in both do not count."""
    area, before = 0.0, speed
    for point in frontier(points):
        if point.speed > before and point.accuracy > accuracy:
            area += (point.speed - before) * (point.accuracy - accuracy)
            before = point.speed
    return area


def aup(points: Iterable[Point], best: float) -> float:
    """Return the accuracy under parallelism of a curve, in tokens per forward pass times points of accuracy.

    `best` is the highest accuracy, from 0 to 1, of all compared curves; report it together with the figure. Points are sorted
    by speed, and each accuracy y, in points, has the weight W(y) = min(exp(-3 (1 - y / best)), 1). The first rectangle counts
    in full; points more than 5 points of accuracy below the slowest point do not count. Of points with equal speed the most
    accurate one counts, which the source leaves open. Source: d3LLM, 2026, arXiv 2601.07568, and its published code.
    """
    heights: dict[float, float] = {}
    for point in sorted(points, key=attrgetter("speed", "accuracy")):
        heights[point.speed] = 100 * point.accuracy
    if not heights or best <= 0:
        return 0.0
    least = next(iter(heights.values())) - LARGEST_FALL
    curve = [(speed, height) for speed, height in heights.items() if height >= least]

    def weighted(height: float) -> float:
        return height * min(math.exp(-FALL_WEIGHT * (1 - height / (100 * best))), 1.0)

    total = curve[0][0] * curve[0][1]
    for (speed, height), (next_speed, next_height) in pairwise(curve):
        total += (next_speed - speed) * (weighted(height) + weighted(next_height)) / 2
    return total


def knee(points: Items[Point]) -> Point:
    """Return the point of a frontier farthest above the line between its ends; the most accurate one if none lies above it."""
    first, last = points[0], points[-1]
    width, fall = last.speed - first.speed, first.accuracy - last.accuracy
    if width <= 0 or fall <= 0:
        return first

    def height(point: Point) -> float:
        return (point.speed - first.speed) / width - (first.accuracy - point.accuracy) / fall

    return max(points, key=lambda point: (height(point), point.accuracy))
