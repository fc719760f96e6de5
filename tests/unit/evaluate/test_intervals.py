"""Laws of intervals and tests: they hold their level, are symmetric, never collapse, and equal a count of all cases."""

from itertools import product
from math import comb
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dlstep.evaluate.intervals import LEVEL, Z, against_best, compared, paired_shares, ratio_gain
from dlstep.evaluate.metrics import Pair, wilson
from dlstep.views.figures import chance

from ...helpers.scripts import script
from .test_metrics import pairs

SCIPY = -2.6995, 0.2146  # a percentile interval: -2.3435, 0.4124
COUNTS = st.integers(1, 2000).flatmap(lambda count: st.tuples(st.integers(0, count), st.just(count)))


def levels() -> ModuleType:
    """The simulation of the docs."""
    return script("measure_levels")


@given(COUNTS)
def test_ends_of_a_score_interval_lie_z_standard_errors_from_the_share(counts: tuple[int, int]) -> None:
    right, count = counts
    low, high = wilson(right, count)
    share = right / count
    assert 0 <= low <= share <= high <= 1 and high - low > 0
    for end in {low, high} - {0.0, 1.0}:
        assert abs(share - end) == pytest.approx(Z * (end * (1 - end) / count) ** 0.5)
    assert (low == 0) == (right == 0) and (high == 1) == (right == count)
    assert wilson(count - right, count) == pytest.approx((1 - high, 1 - low))


def test_no_answer_tells_nothing() -> None:
    assert wilson(0, 0) == (0, 1)


@given(st.integers(0, 14), st.integers(0, 14), st.integers(1, 30))
def test_the_p_of_paired_shares_counts_all_signs_and_the_interval_has_a_width(better: int, worse: int, alike: int) -> None:
    count = better + worse + alike
    gain, other = paired_shares(better, worse, count), paired_shares(worse, better, count)
    signs = better + worse
    far = [heads for heads in range(signs + 1) if abs(2 * heads - signs) >= abs(better - worse)]
    assert gain.p == pytest.approx(sum(comb(signs, heads) for heads in far) / 2**signs) and gain.p > 0
    assert gain.low < gain.value < gain.high and gain.low >= -1 and gain.high <= 1
    assert (gain.value, gain.low, gain.high, gain.p) == (-other.value, -other.high, -other.low, other.p)


@settings(max_examples=10)
@given(pairs(), st.data())
def test_comparing_is_symmetric_and_repeatable(mine: list[Pair], data: st.DataObject) -> None:
    others = data.draw(pairs(len(mine), len(mine)))
    one, other = compared(mine, others, resamples=199), compared(others, mine, resamples=199)
    assert one == compared(mine, others, resamples=199)
    assert (one.problems, one.equal) == (other.problems, other.equal)
    for here, there in ((one.accuracy, other.accuracy), (one.tokens_per_forward, other.tokens_per_forward)):
        expected = (-there.value, -there.high, -there.low, there.p)
        assert (here.value, here.low, here.high, here.p) == pytest.approx(expected, abs=1e-9)
        assert here.low <= here.high and 0 < here.p <= 1 and here.method == there.method


@given(pairs())
def test_a_run_gains_nothing_over_itself(found: list[Pair]) -> None:
    same = compared(found, found, resamples=99)
    assert same.equal == same.accuracy.p == same.tokens_per_forward.p == 1
    speed = same.tokens_per_forward
    assert (speed.value, speed.low, speed.high, speed.method) == (0, 0, 0, "percentile")
    assert same.accuracy.value == 0 and same.accuracy.low == -same.accuracy.high < 0


def test_the_p_of_a_certain_gain_is_bounded_by_the_resamples() -> None:
    gain = ratio_gain(np.array([[8.0, 2.0, 4.0, 2.0]] * 40), 199)
    assert (gain.value, gain.low, gain.high, gain.p) == (2, 2, 2, 2 / 200)
    assert (chance(gain.p), chance(0.0004), chance(None)) == ("0.010", "<0.001", "-")


def test_a_bca_interval_is_that_of_scipy() -> None:
    """SciPy 1.17.1: `bootstrap(..., paired=True, method="BCa", n_resamples=200_000)` of the same difference of two ratios."""
    random = np.random.default_rng(5)
    forwards = random.poisson(4, (40, 2)) + 1
    tokens = np.floor(forwards * random.exponential(3.0, (40, 2))) + 1
    table = np.column_stack([tokens[:, 0], forwards[:, 0], tokens[:, 1], forwards[:, 1]])
    gain = ratio_gain(table, 20_000)
    assert gain.method == "BCa"
    assert (gain.low, gain.high) == pytest.approx(SCIPY, abs=0.06)


@given(st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=1, max_size=8))
def test_a_row_is_worse_where_few_of_all_signs_make_it_look_so(rows: list[list[bool]]) -> None:
    scores = np.array(rows, dtype=float)
    count, several = scores.shape
    error = [[(np.sum((scores[:, i] - scores[:, j]) ** 2) + 1) ** 0.5 for j in range(several)] for i in range(several)]

    def largest(row: int, signs: tuple[int, ...]) -> float:
        others = [j for j in range(several) if j != row]
        return max(float(np.dot(signs, scores[:, j] - scores[:, row])) / error[row][j] for j in others)

    for row, standing in enumerate(against_best(scores, resamples=999)):
        seen = largest(row, (1,) * count)
        p = np.mean([largest(row, signs) >= seen - 1e-9 for signs in product((-1, 1), repeat=count)])
        assert standing.best or p < LEVEL + 0.03, "held back at most"
        assert not standing.best or p > LEVEL / 5, p
        assert standing.low <= standing.high <= 0 and standing.value <= 0
        assert standing.value == pytest.approx(scores[:, row].mean() - scores.mean(axis=0).max())
        assert standing.best or standing.high < 0


def test_the_most_accurate_row_may_always_be_the_best_and_one_row_is() -> None:
    (alone,) = against_best(np.zeros((5, 1)))
    assert (alone.value, alone.low, alone.high, alone.best) == (0, 0, 0, True)
    first, second = against_best(np.array([[1.0, 0.0]] * 40))
    assert first.best and not second.best and first.low == 0 and second.high < -0.5 and second.low <= -1
    assert [each.best for each in against_best(np.ones((40, 5)))] == [True] * 5
    assert all(each.low < -2 / 40 for each in against_best(np.ones((40, 5)))), "equal answers do not make it sure"


@pytest.mark.parametrize("rows", [2, 5, 30])
def test_equal_rows_are_seldom_called_worse(rows: int) -> None:
    """Compared with the row that happened to be the best, 5 rows are called worse in 7 % and 30 in 24 %."""
    assert levels().level(rows, 100, 0.9, "alike", 600 // rows) <= 0.06
    assert levels().power(rows, 300, 20) > 0.8


@pytest.mark.stress
@pytest.mark.parametrize("rows", [2, 5, 12, 40])
def test_the_level_holds_for_any_number_of_rows_as_the_page_says(rows: int) -> None:
    module = levels()
    most, found = module.line(rows, runs=max(60, 1000 // rows))
    assert most <= 0.06
    (line,) = (line for line in module.PAGE.read_text().splitlines() if line.startswith(f"| {rows} | {most:.1%} |"))
    assert line.endswith(f" {' | '.join(f'{each:.0%}' for each in found)} |")
