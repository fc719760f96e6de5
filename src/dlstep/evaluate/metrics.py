"""Figures of a run, from sums. Two sums make a ratio; ratios are never added or averaged."""

import math
from collections.abc import Iterable, Mapping, Sequence as Items
from dataclasses import dataclass, fields
from functools import lru_cache
from operator import attrgetter
from typing import Any, Self

import numpy as np

RESAMPLES = 2000
TAIL = 0.025  # of the resamples on either side of the interval


class Sums:
    """A dataclass of numbers that are added one by one."""

    def __add__(self, other: Self) -> Self:
        """The sums of both."""
        return type(self)(*(mine + yours for mine, yours in zip(self.parts, other.parts, strict=True)))

    @property
    def parts(self) -> tuple[Any, ...]:
        """The numbers, in order."""
        return tuple(attrgetter(field.name)(self) for field in fields(self))  # pyright: ignore[reportArgumentType]

    @classmethod
    def total(cls, each: Iterable[Self]) -> Self:
        """The sums of all."""
        return sum(each, cls())


@dataclass(frozen=True, slots=True)
class Answers(Sums):
    """Sums over answers: how many, those that were rejected or failed, scores, emitted tokens and forwards of each kind.

    `forwards` are all that an answer took part in, `steps` those that sampled a position of it. `computed` are the rows that
    were fed for the answer, `wasted` those of them that had been fed before. The rest are squares, for standard errors.
    """

    count: int = 0
    failed: int = 0
    score: float = 0.0
    tokens: int = 0
    forwards: int = 0
    steps: int = 0
    computed: int = 0
    wasted: int = 0
    score_score: float = 0.0
    tokens_tokens: int = 0
    forwards_forwards: int = 0
    tokens_forwards: int = 0

    @classmethod
    def of(cls, row: Mapping[str, Any], beside: Mapping[str, Any]) -> "Answers":
        """The sums of one answer: its row, and the one that lies beside it."""
        return cls.counted(
            score=row["score"],
            tokens=len(row["tokens"]),
            forwards=beside["forwards"],
            steps=row["steps"],
            failed=row["finish"] in ("rejected", "error", "abort"),
            computed=beside["computed"],
            wasted=beside["wasted"],
        )

    @classmethod
    def counted(
        cls, *, score: float, tokens: int, forwards: int, steps: int, failed: bool = False, computed: int = 0, wasted: int = 0
    ) -> "Answers":
        """The sums of one answer."""
        squares = score * score, tokens * tokens, forwards * forwards, tokens * forwards
        return cls(1, int(failed), score, tokens, forwards, steps, computed, wasted, *squares)

    @property
    def accuracy(self) -> float:
        """The mean score."""
        return ratio(self.score, self.count)

    @property
    def accuracy_error(self) -> float:
        """The standard error of the accuracy; 0 for one answer."""
        return spread(self.score_score, self.score, self.count)

    @property
    def tokens_per_forward(self) -> float:
        """Emitted tokens / all forwards."""
        return ratio(self.tokens, self.forwards)

    @property
    def tokens_per_forward_error(self) -> float:
        """The standard error of `tokens_per_forward`, to first order."""
        rate = self.tokens_per_forward
        squares = self.tokens_tokens - 2 * rate * self.tokens_forwards + rate * rate * self.forwards_forwards
        return ratio(spread(squares, 0.0, self.count) * self.count, self.forwards)

    @property
    def tokens_per_step(self) -> float:
        """Emitted tokens / forwards that sampled a position of the answer."""
        return ratio(self.tokens, self.steps)

    @property
    def forwards_per_answer(self) -> float:
        """All forwards / answers."""
        return ratio(self.forwards, self.count)

    @property
    def forwards_per_answer_error(self) -> float:
        """The standard error of `forwards_per_answer`."""
        return spread(self.forwards_forwards, self.forwards, self.count)


@dataclass(frozen=True, slots=True)
class Work(Sums):
    """Sums over forwards of an engine: `rows` that they computed for requests, `padding` rows beside those, and `seconds`.

    A forward has a span for each request in it. `sampling` counts the forwards that sampled, `decode_seconds` what steps with
    such a forward took; `wall_seconds` is the time from the first request in to the last answer out.
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

    @property
    def batch(self) -> float:
        """Requests in a forward."""
        return ratio(self.spans, self.forwards)

    @property
    def padding_share(self) -> float:
        """Padding rows / all rows."""
        return ratio(self.padding, self.padding + self.rows)


def ratio(over: float, under: float) -> float:
    """One sum by another; 0 where there is nothing to divide by."""
    return over / under if under else 0.0


def spread(squares: float, total: float, count: int) -> float:
    """The standard error of a mean, from the sum of squares, the sum and the number of values."""
    if count < 2:
        return 0.0
    return math.sqrt(max(0.0, squares - total * total / count) / (count - 1) / count)


@dataclass(frozen=True, slots=True)
class Gain:
    """A figure of one run less that of another, its interval of 95 %, and how often resamples fall on the rarer side of 0."""

    value: float
    low: float
    high: float
    p: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs on the same problems: what the first has more than the second; `equal` is the share of equal answers."""

    problems: int
    accuracy: Gain
    tokens_per_forward: Gain
    equal: float


Pair = tuple[Mapping[str, Any], Mapping[str, Any]]  # an answer's row, and the one beside it


def compared(mine: Items[Pair], others: Items[Pair], *, resamples: int = RESAMPLES) -> Comparison:
    """A paired bootstrap over problems; the two runs have the same ones, in the same order.

    Swapping the runs changes signs and nothing else, and the same runs give the same figures.
    """
    count = len(mine)
    table = np.array([figures_of(*pair) + figures_of(*other) for pair, other in zip(mine, others, strict=True)], dtype=float)
    sums = drawn(count, resamples) @ table
    whole = table.sum(axis=0, keepdims=True)
    same = sum(pair[0]["tokens"] == other[0]["tokens"] for pair, other in zip(mine, others, strict=True))
    return Comparison(
        count,
        gain((whole[:, 0] - whole[:, 3]) / count, (sums[:, 0] - sums[:, 3]) / count),
        gain(rates(whole[:, :3]) - rates(whole[:, 3:]), rates(sums[:, :3]) - rates(sums[:, 3:])),
        same / count,
    )


@lru_cache(maxsize=1)
def drawn(count: int, resamples: int) -> "np.ndarray[Any, Any]":
    """How often each problem is drawn by each resample; in the order of the problems, which is that of their keys."""
    return np.random.default_rng(count).multinomial(count, [1 / count] * count, size=resamples)


def figures_of(row: Mapping[str, Any], beside: Mapping[str, Any]) -> tuple[float, float, float]:
    """Score, tokens and forwards of an answer."""
    return row["score"], len(row["tokens"]), beside["forwards"]


def rates(sums: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """Tokens / forwards of each line; 0 where there was no forward."""
    return np.divide(sums[:, 1], sums[:, 2], out=np.zeros(len(sums)), where=sums[:, 2] > 0)


def gain(whole: "np.ndarray[Any, Any]", resampled: "np.ndarray[Any, Any]") -> Gain:
    """The gain of the whole set, with the interval of its resamples."""
    order = np.sort(resampled)
    cut = int(TAIL * len(order))
    below, above = float(np.mean(order <= 0)), float(np.mean(order >= 0))
    return Gain(float(whole[0]), float(order[cut]), float(order[len(order) - 1 - cut]), min(1.0, 2 * min(below, above)))
