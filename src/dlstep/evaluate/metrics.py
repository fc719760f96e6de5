"""Figures of a run, computed from sums (ratios are never averaged), and frontiers."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from itertools import pairwise
from operator import attrgetter
from statistics import NormalDist
from typing import Any, Self

from ..core.options import StrategyOptions

ROUND = 6  # decimals of measured values
LEVEL = 0.05  # level of all intervals and tests
FAILURES = ("rejected", "error", "abort")  # reasons why an answer ended that make it a failure
Z = NormalDist().inv_cdf(1 - LEVEL / 2)
Pair = tuple[Mapping[str, Any], Mapping[str, Any]]  # lines of `answers.jsonl` and `beside.jsonl`


class Sums:
    """A dataclass of numbers that are added field by field."""

    def __add__(self, other: Self) -> Self:
        """Return the sums of both."""
        names = [field.name for field in fields(self)]  # pyright: ignore[reportArgumentType]
        return type(self)(*(getattr(self, name) + getattr(other, name) for name in names))

    @classmethod
    def total(cls, each: Iterable[Self]) -> Self:
        """Return the sums of all."""
        return sum(each, cls())


@dataclass(frozen=True, slots=True)
class Answers(Sums):
    """Sums over answers: counts, scores, decoded tokens and forward passes.

    `forwards` are all forward passes that included the answer, `steps` those that sampled a
    position of it. `computed` are the rows computed for the answer, `wasted` those that had been
    computed before. The rest are squares, for standard errors.
    """

    count: int = 0
    failed: int = 0
    score: float = 0.0
    tokens: int = 0
    forwards: int = 0
    steps: int = 0
    computed: int = 0
    wasted: int = 0
    tokens_tokens: int = 0
    forwards_forwards: int = 0
    tokens_forwards: int = 0

    @classmethod
    def of(cls, row: Mapping[str, Any], beside: Mapping[str, Any]) -> "Answers":
        """Return the sums of one answer, from its two lines."""
        costs = {name: beside[name] for name in ("forwards", "computed", "wasted")}
        return cls.counted(score=row["score"], tokens=len(row["tokens"]), steps=row["steps"], finish=row["finish"], **costs)

    @classmethod
    def counted(
        cls, *, score: float, tokens: int, forwards: int, steps: int, finish: str = "", computed: int = 0, wasted: int = 0
    ) -> "Answers":
        """Return the sums of one answer."""
        squares = tokens * tokens, forwards * forwards, tokens * forwards
        return cls(1, int(finish in FAILURES), score, tokens, forwards, steps, computed, wasted, *squares)

    @property
    def accuracy(self) -> float:
        """The mean score."""
        return ratio(self.score, self.count)

    @property
    def accuracy_interval(self) -> tuple[float, float]:
        """The score interval of the accuracy."""
        return wilson(self.score, self.count)

    @property
    def tokens_per_forward(self) -> float:
        """Decoded tokens / all forward passes."""
        return ratio(self.tokens, self.forwards)

    @property
    def tokens_per_forward_error(self) -> float:
        """The first-order standard error of `tokens_per_forward`."""
        rate = self.tokens_per_forward
        squares = self.tokens_tokens - 2 * rate * self.tokens_forwards + rate * rate * self.forwards_forwards
        return ratio(spread(squares, 0.0, self.count) * self.count, self.forwards)

    @property
    def tokens_per_step(self) -> float:
        """Decoded tokens / forward passes that sampled a position of the answer."""
        return ratio(self.tokens, self.steps)

    @property
    def forwards_per_answer(self) -> float:
        """All forward passes / answers."""
        return ratio(self.forwards, self.count)

    @property
    def forwards_per_answer_error(self) -> float:
        """The standard error of `forwards_per_answer`."""
        return spread(self.forwards_forwards, self.forwards, self.count)


@dataclass(frozen=True, slots=True)
class ForwardSums(Sums):
    """Sums over forward passes of an engine: rows of requests, `padding` rows, and seconds.

    A forward pass has a span for each of its requests. `sampling` counts the passes that sampled,
    `decode_seconds` is the time of their steps; `wall_seconds` is the time from the first request
    to the last answer.
    """

    forwards: int = 0
    sampling: int = 0
    spans: int = 0
    rows: int = 0
    padding: int = 0
    preemptions: int = 0
    seconds: float = 0.0
    decode_seconds: float = 0.0
    wall_seconds: float = 0.0


def ratio(over: float, under: float) -> float:
    """Return the ratio of two sums; 0 if the denominator is 0."""
    return over / under if under else 0.0


def spread(squares: float, total: float, count: int) -> float:
    """Return the standard error of a mean from sum of squares, sum and number of values."""
    if count < 2:
        return 0.0
    return math.sqrt(max(0.0, squares - total * total / count) / (count - 1) / count)


def wilson(right: float, count: int) -> tuple[float, float]:
    """Return the score interval of the share `right` / `count` (Wilson, 1927)."""
    if not count:
        return 0.0, 1.0
    share, weight = right / count, Z * Z / count
    middle = (share + weight / 2) / (1 + weight)
    half = Z * math.sqrt(share * (1 - share) / count + weight / count / 4) / (1 + weight)
    return max(0.0, middle - half) if right else 0.0, min(1.0, middle + half) if right < count else 1.0


LARGEST_FALL = 5.0  # in points of accuracy, below the slowest point: lower points do not count
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


def frontier(points: Iterable[Point]) -> list[Point]:
    """Return the points that no other point beats, the slowest first; of equal ones the first."""
    kept: list[Point] = []
    for point in sorted(points, key=lambda point: (-point.speed, -point.accuracy)):
        if not kept or point.accuracy > kept[-1].accuracy:
            kept.append(point)
    return kept[::-1]


def aup(points: Iterable[Point], best: float) -> float:
    """Return the accuracy under parallelism, in tokens per forward pass times points of accuracy.

    `best` is the highest accuracy, from 0 to 1, of all compared curves; report it together with the
    figure. Points are sorted by speed, and each accuracy y, in points, has the weight W(y) =
    min(exp(-3 (1 - y / best)), 1). The first rectangle counts in full; points more than 5 points of
    accuracy below the slowest point do not count. Of points with equal speed the most accurate one
    counts, which the source leaves open. Source: d3LLM, 2026, arXiv 2601.07568, and its published
    code.
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
