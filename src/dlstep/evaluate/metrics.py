"""Figures of answers, with intervals and tests: of one run, of two on the same problems, and of many against the best.

Ratios are ratios of sums, never averaged. A score is 0 or 1. Every interval has a nominal level of
95 %.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist, stdev
from typing import Any, NamedTuple

import numpy as np

ROUND = 6  # decimals of measured values
LEVEL = 0.05  # level of all intervals and tests
RESAMPLES = 1999  # one less than a round number: the observed value counts as one more resample
HALF = 0.5 - 1e-9  # problems: the continuity correction for integer sums, minus rounding errors
FAILURES = ("rejected", "error", "abort")  # finish reasons of failed requests
NORMAL = NormalDist()
Z = NORMAL.inv_cdf(1 - LEVEL / 2)
LARGEST_FALL = 5.0  # points of accuracy: the AUP omits points further below the slowest one
FALL_WEIGHT = 3.0  # the exponent of the AUP's weights
Pair = tuple[Mapping[str, Any], Mapping[str, Any]]  # lines of an answer and of what depends on the batch
Point = tuple[float, float]  # tokens per forward pass, accuracy
Array = np.ndarray[Any, Any]


class Answers(NamedTuple):
    """Figures of answers: of each its score, its decoded tokens and all forward passes that included it.

    `seconds` is the sum of the answers' shares of the wall time.
    """

    scores: Sequence[float]
    tokens: Sequence[int]
    forwards: Sequence[int]
    failed: int = 0
    seconds: float = 0.0

    @classmethod
    def of(cls, pairs: Sequence[Pair]) -> "Answers":
        """Return the figures of answers, each given by its two lines."""
        rows, beside = [row for row, _ in pairs], [each for _, each in pairs]
        return cls(
            [row["score"] for row in rows], [len(row["tokens"]) for row in rows], [each["forwards"] for each in beside],
            sum(row["finish"] in FAILURES for row in rows),
            sum(each["share"] for each in beside),
        )  # fmt: skip

    @property
    def accuracy(self) -> float:
        """The mean score."""
        return ratio(sum(self.scores), len(self.scores))

    @property
    def tokens_per_forward(self) -> float:
        """Decoded tokens / all forward passes."""
        return ratio(sum(self.tokens), sum(self.forwards))

    @property
    def forwards_per_answer(self) -> float:
        """All forward passes / answers."""
        return ratio(sum(self.forwards), len(self.scores))


def ratio(over: float, under: float) -> float:
    """Return the ratio of two sums; 0 if the denominator is 0."""
    return over / under if under else 0.0


def standard_error(values: Sequence[float]) -> float | None:
    """Return the standard error of a mean; a single value has none."""
    return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None


def residuals(over: Sequence[float], under: Sequence[float]) -> list[float]:
    """Return what each problem adds to a ratio of sums, to first order: its mean has the error of the ratio."""
    rate, mean = ratio(sum(over), sum(under)), ratio(sum(under), len(under))
    return [ratio(one - rate * other, mean) for one, other in zip(over, under, strict=True)]


def wilson(right: float, count: int) -> tuple[float, float]:
    """Return the score interval of the share `right` / `count` (Wilson, 1927)."""
    if not count:
        return 0.0, 1.0
    share, weight = right / count, Z * Z / count
    middle = (share + weight / 2) / (1 + weight)
    half = Z * math.sqrt(share * (1 - share) / count + weight / count / 4) / (1 + weight)
    return max(0.0, middle - half) if right else 0.0, min(1.0, middle + half) if right < count else 1.0


@dataclass(frozen=True, slots=True)
class Difference:
    """A figure of one run minus another's, its interval, and the two-sided p of no difference."""

    value: float
    low: float
    high: float
    p: float


def compared(mine: Sequence[Pair], others: Sequence[Pair]) -> dict[str, Any]:
    """Return what one run gains over another on the same problems in the same order, and the share of `equal` answers.

    Swapping the runs only changes signs.
    """
    first, second = Answers.of(mine), Answers.of(others)
    gains = [one - other for one, other in zip(first.scores, second.scores, strict=True)]
    same = sum(pair[0]["tokens"] == other[0]["tokens"] for pair, other in zip(mine, others, strict=True))
    shares = paired_shares(sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains), len(gains))
    return {"equal": same / len(gains), "accuracy_gain": shares, "speed_gain": ratio_gain(first, second)}


def paired_shares(better: int, worse: int, count: int) -> Difference:
    """Return the difference of two shares, which differ on `better` and `worse` problems.

    The interval adds one problem to each of them (Bonett and Price, 2012); p is that of McNemar's
    exact test.
    """
    middle, spread = (better - worse) / (count + 2), (better + worse + 2) / (count + 2)
    half = Z * math.sqrt((spread - middle * middle) / (count + 2))
    differing = better + worse
    tail = sum(math.comb(differing, each) for each in range(min(better, worse) + 1))
    p = min(1.0, 2 * tail / 2**differing)
    return Difference((better - worse) / count, max(-1.0, middle - half), min(1.0, middle + half), p)


def ratio_gain(mine: Answers, other: Answers) -> Difference:
    """Return the difference of two tokens per forward pass on the same problems, to first order."""
    value = mine.tokens_per_forward - other.tokens_per_forward
    each = zip(residuals(mine.tokens, mine.forwards), residuals(other.tokens, other.forwards), strict=True)
    error = standard_error([one - another for one, another in each]) or 0.0
    p = 2 * NORMAL.cdf(-abs(value) / error) if error else float(value == 0)
    return Difference(value, value - Z * error, value + Z * error, p)


class DistanceToBest(NamedTuple):
    """The accuracy of a row minus the best row's, 95 % bounds, and whether it may be the best."""

    to_best: float
    to_best_low: float
    to_best_high: float
    as_right: bool


def against_best(scores: Array, *, resamples: int = RESAMPLES) -> list[DistanceToBest]:
    """Compare each row with the best of all rows (Hsu, 1984), at one level for any number of rows.

    `scores` has a line for each problem and a column for each row. A row is called worse if another
    row beats it by more than a limit: the 95 % quantile of its largest studentised difference to
    all other rows, when the signs of each problem's differences are flipped at random. So a row
    that is truly the best is called worse with a probability of at most 5 %.

    A difference is divided by the square root of one plus the number of problems on which the two
    rows differ. The limit is at least the quantile of the normal distribution; otherwise rows with
    equal answers would have intervals of width 0. Half a problem is the continuity correction.
    """
    count, rows = scores.shape
    total = scores.sum(axis=0)
    both = scores.T @ scores
    right = np.diag(both)
    error = np.sqrt(right[:, None] + right[None, :] - 2 * both + 1)
    signs = np.random.default_rng(count).integers(0, 2, (resamples, count), dtype=np.int8)
    flipped = (2.0 * signs - 1.0) @ scores
    limits = np.zeros(rows)  # for each row against all others
    for row in range(rows) if rows > 1 else ():
        largest = np.delete((flipped - flipped[:, [row]]) / error[row], row, axis=1).max(axis=1)
        limits[row] = max(np.sort(largest)[-int(LEVEL * (resamples + 1))], NORMAL.inv_cdf(1 - LEVEL))
    ahead = total[:, None] - total[None, :]  # lead of each row over each other row
    highs = np.min(ahead + limits[:, None] * error + HALF, axis=1)
    candidates = highs >= 0
    distances: list[DistanceToBest] = []
    for row in range(rows):
        others = candidates & (np.arange(rows) != row)
        low = np.min((ahead[row] - limits * error[row] - HALF)[others], initial=0.0)
        figures = (float((total[row] - total.max()) / count), float(low / count), min(0.0, float(highs[row] / count)))
        distances.append(DistanceToBest(*figures, bool(candidates[row])))
    return distances


def frontier(points: Iterable[Point]) -> set[Point]:
    """Return the points for which no other is better in one figure and at least as good in the other."""
    kept: list[Point] = []
    for speed, accuracy in sorted(points, reverse=True):
        if not kept or accuracy > kept[-1][1]:
            kept.append((speed, accuracy))
    return set(kept)


def aup(points: Iterable[Point], best: float) -> float:
    """Return the accuracy under parallelism, in tokens per forward pass times points of accuracy.

    `best` is the highest accuracy, from 0 to 1, of all compared curves; report it together with the
    figure. Points are sorted by speed, and each accuracy y, in points, has the weight W(y) =
    min(exp(-3 (1 - y / best)), 1). The first rectangle counts in full; points more than 5 points of
    accuracy below the slowest point do not count. Of points with equal speed the most accurate one
    counts, which the source leaves open. Source: d3LLM, 2026, arXiv 2601.07568, and its published
    code.
    """
    heights = {speed: 100 * accuracy for speed, accuracy in sorted(points)}
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
