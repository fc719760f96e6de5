"""Intervals and tests: two runs on the same problems, and many rows against the best of them.

A score is 0 or 1. Every interval has a nominal level of 95 %, and none has width 0 because all
answers happen to be right.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import comb, sqrt
from statistics import NormalDist
from typing import Any

import numpy as np

from .metrics import LEVEL, Pair, Z

RESAMPLES = 1999  # one less than a round number: the observed value counts as one more resample
HALF = 0.5 - 1e-9  # problems: the continuity correction for integer sums, minus rounding errors
NORMAL = NormalDist()
Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Difference:
    """A figure of one run minus another's, its interval, and the two-sided p of no difference."""

    value: float
    low: float
    high: float
    p: float
    method: str


@dataclass(frozen=True, slots=True)
class PairedComparison:
    """The gains of one run over another on the same problems, and the share of `equal` answers."""

    problems: int
    accuracy: Difference
    tokens_per_forward: Difference
    equal: float


def compared(mine: Sequence[Pair], others: Sequence[Pair], *, resamples: int = RESAMPLES) -> PairedComparison:
    """Compare two runs on the same problems, given in the same order.

    Swapping the runs only changes signs, and the same runs always give the same figures.
    """
    pairs, count = list(zip(mine, others, strict=True)), len(mine)
    # A line for each problem: score, tokens and forward passes of the first run, then of the
    # second.
    figures = [[(row["score"], len(row["tokens"]), beside["forwards"]) for row, beside in both] for both in pairs]
    table = np.array(figures, dtype=float).reshape(count, 6)
    same = sum(pair[0]["tokens"] == other[0]["tokens"] for pair, other in pairs)
    better, worse = (int(np.sum(sign * (table[:, 0] - table[:, 3]) > 0)) for sign in (1, -1))
    shares, speeds = paired_shares(better, worse, count), ratio_gain(table[:, [1, 2, 4, 5]], resamples)
    return PairedComparison(count, shares, speeds, same / count)


def paired_shares(better: int, worse: int, count: int) -> Difference:
    """Return the difference of two shares, which differ on `better` and `worse` problems.

    The interval adds one problem to each of them (Bonett and Price, 2012); p is that of McNemar's
    exact test.
    """
    middle, spread = (better - worse) / (count + 2), (better + worse + 2) / (count + 2)
    half = Z * sqrt((spread - middle * middle) / (count + 2))
    differing = better + worse
    tail = sum(comb(differing, each) for each in range(min(better, worse) + 1))
    p = min(1.0, 2 * tail / 2**differing)
    return Difference((better - worse) / count, max(-1.0, middle - half), min(1.0, middle + half), p, "Bonett-Price")


def ratio_gain(table: Array, resamples: int) -> Difference:
    """Return the difference of two ratios of sums, with a BCa interval (Efron, 1987).

    `table` has a line for each problem: numerator and denominator of the first ratio, then of the
    second. If all problems are alike, BCa is undefined and the percentile interval is used. p
    counts the observed value as one more resample.
    """
    total = table.sum(axis=0)
    value = float(ratios(total[None])[0])
    drawn = ratios(draws(len(table), resamples) @ table)
    apart = ratios(total - table)
    apart = apart.mean() - apart
    squares = float(np.sum(apart**2))
    below, above = float(np.mean(drawn < value)), float(np.mean(drawn > value))
    p = min(1.0, 2 * (1 + min(int(np.sum(drawn <= 0)), int(np.sum(drawn >= 0)))) / (resamples + 1))
    tails, method = (LEVEL / 2, 1 - LEVEL / 2), "percentile"
    if squares > 0 and 0 < (middle := (1 + below - above) / 2) < 1:
        bias, skew = NORMAL.inv_cdf(middle), float(np.sum(apart**3)) / (6 * squares**1.5)
        moved = [bias + (bias + z) / (1 - skew * (bias + z)) for z in (-Z, Z)]
        tails, method = (NORMAL.cdf(moved[0]), NORMAL.cdf(moved[1])), "BCa"
    low, high = np.quantile(drawn, tails)
    return Difference(value, float(low), float(high), p, method)


@lru_cache(maxsize=1)
def draws(count: int, resamples: int) -> Array:
    """Return how often each resample draws each problem: a row per resample, a column per problem."""
    return np.random.default_rng(count).multinomial(count, [1 / count] * count, size=resamples)


@lru_cache(maxsize=1)
def signs(count: int, resamples: int) -> Array:
    """Return a random sign of each problem for each resample."""
    return 2.0 * np.random.default_rng(count).integers(0, 2, (resamples, count), dtype=np.int8) - 1.0


def ratios(sums: Array) -> Array:
    """Return the difference of two ratios for each line of four sums; a ratio to 0 is 0."""
    over, under = sums[:, ::2], sums[:, 1::2]
    quotients = np.divide(over, under, out=np.zeros(over.shape), where=under > 0)
    return quotients[:, 0] - quotients[:, 1]


@dataclass(frozen=True, slots=True)
class DistanceToBest:
    """The accuracy of a row minus the best row's, 95 % bounds, and whether it may be the best."""

    value: float
    low: float
    high: float
    best: bool


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
    flipped = signs(count, resamples) @ scores
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
