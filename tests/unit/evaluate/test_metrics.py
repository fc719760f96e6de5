"""Laws of figures, intervals and frontiers: ratios are of sums, intervals hold their level and are symmetric."""

import math
from fractions import Fraction
from itertools import product
from math import comb, exp
from statistics import mean, stdev

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dlstep.evaluate.metrics import (
    LEVEL,
    Answers,
    Z,
    against_best,
    aup,
    compared,
    frontier,
    paired_shares,
    ratio_gain,
    wilson,
)
from dlstep.evaluate.table import figures_of

COUNTS = st.integers(1, 2000).flatmap(lambda count: st.tuples(st.integers(0, count), st.just(count)))
SIDE = 12  # of the lattice that areas are counted on
PLACES = st.lists(st.tuples(st.integers(0, SIDE), st.integers(0, SIDE)), min_size=1, max_size=12)


@st.composite
def pairs(draw, least=1, most=30):
    """Answers to as many documents."""
    found = []
    for document in range(draw(st.integers(least, most))):
        steps = draw(st.integers(0, 50))
        row = {
            "document": document,
            "tokens": draw(st.lists(st.integers(0, 3), max_size=8)),
            "steps": steps,
            "score": float(draw(st.booleans())),
            "finish": draw(st.sampled_from(["stop", "length", "rejected", "error"])),
        }
        found.append((row, {"forwards": steps + draw(st.integers(0, 5)), "share": 0.5}))
    return found


@given(pairs(least=2), st.data())
def test_a_ratio_is_one_of_sums_and_errors_are_those_of_the_textbook(found, data):
    sums = Answers.of(list(data.draw(st.permutations(found))))
    figures = figures_of(sums)
    tokens = [len(row["tokens"]) for row, _ in found]
    forwards = [beside["forwards"] for _, beside in found]
    scores = [row["score"] for row, _ in found]
    count = len(found)
    assert sums.accuracy == pytest.approx(mean(scores)) and sums.seconds == count / 2
    assert (figures["accuracy_low"], figures["accuracy_high"]) == wilson(sum(scores), count)
    assert figures["forwards_per_answer_error"] == pytest.approx(stdev(forwards) / math.sqrt(count), abs=1e-6)
    if sum(forwards):
        rate = Fraction(sum(tokens), sum(forwards))
        assert sums.tokens_per_forward == float(rate)
        left = [float(t - rate * f) for t, f in zip(tokens, forwards, strict=True)]  # they sum to 0
        assert figures["tokens_per_forward_error"] == pytest.approx(stdev(left) / math.sqrt(count) / mean(forwards), abs=1e-6)
    else:
        assert sums.tokens_per_forward == figures["tokens_per_forward_error"] == 0
    assert sums.failed == sum(row["finish"] in ("rejected", "error") for row, _ in found)


@given(COUNTS)
def test_ends_of_a_score_interval_lie_z_standard_errors_from_the_share(counts):
    right, count = counts
    low, high = wilson(right, count)
    share = right / count
    assert 0 <= low <= share <= high <= 1 and high - low > 0
    for end in {low, high} - {0.0, 1.0}:
        assert abs(share - end) == pytest.approx(Z * (end * (1 - end) / count) ** 0.5)
    assert (low == 0) == (right == 0) and (high == 1) == (right == count)
    assert wilson(count - right, count) == pytest.approx((1 - high, 1 - low))


@given(st.integers(0, 14), st.integers(0, 14), st.integers(1, 30))
def test_the_p_of_paired_shares_counts_all_signs_and_the_interval_has_a_width(better, worse, alike):
    count = better + worse + alike
    gain, other = paired_shares(better, worse, count), paired_shares(worse, better, count)
    signs = better + worse
    far = [heads for heads in range(signs + 1) if abs(2 * heads - signs) >= abs(better - worse)]
    assert gain.p == pytest.approx(sum(comb(signs, heads) for heads in far) / 2**signs) and gain.p > 0
    assert gain.low < gain.value < gain.high and gain.low >= -1 and gain.high <= 1
    assert (gain.value, gain.low, gain.high, gain.p) == (-other.value, -other.high, -other.low, other.p)


@settings(max_examples=20)
@given(pairs(least=2), st.data())
def test_comparing_is_symmetric(mine, data):
    others = data.draw(pairs(len(mine), len(mine)))
    one, other = compared(mine, others), compared(others, mine)
    assert one["equal"] == other["equal"]
    for here, there in ((one[name], other[name]) for name in ("accuracy_gain", "speed_gain")):
        expected = (-there.value, -there.high, -there.low, there.p)
        assert (here.value, here.low, here.high, here.p) == pytest.approx(expected, abs=1e-9)
        assert here.low <= here.value <= here.high and 0 <= here.p <= 1


def test_the_interval_of_a_gain_in_speed_holds_its_level():
    """Paired answers of about 40 problems, whose lengths and speeds go together."""
    random, missed, runs = np.random.default_rng(5), 0, 400
    for _ in range(runs):
        length = random.exponential(40.0, 40) + 5
        forwards = [np.ceil(length / rate * random.uniform(0.7, 1.3, 40)) for rate in (4.0, 3.0)]
        one, other = (Answers([], [*length], [*each]) for each in forwards)
        gain = ratio_gain(one, other)
        missed += not gain.low <= 0.995 <= gain.high
    assert missed / runs < 0.10


@given(st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=1, max_size=8))
def test_a_row_is_worse_where_few_of_all_signs_make_it_look_so(rows):
    scores = np.array(rows, dtype=float)
    count, several = scores.shape
    error = [[(np.sum((scores[:, i] - scores[:, j]) ** 2) + 1) ** 0.5 for j in range(several)] for i in range(several)]

    def largest(row, signs):
        others = [j for j in range(several) if j != row]
        return max(float(np.dot(signs, scores[:, j] - scores[:, row])) / error[row][j] for j in others)

    for row, standing in enumerate(against_best(scores, resamples=999)):
        seen = largest(row, (1,) * count)
        p = np.mean([largest(row, signs) >= seen - 1e-9 for signs in product((-1, 1), repeat=count)])
        assert standing.as_right or p < LEVEL + 0.03, "held back at most"
        assert not standing.as_right or p > LEVEL / 5, p
        assert standing.to_best_low <= standing.to_best_high <= 0 and standing.to_best <= 0
        assert standing.to_best == pytest.approx(scores[:, row].mean() - scores.mean(axis=0).max())
        assert standing.as_right or standing.to_best_high < 0


def test_a_single_row_is_best_and_equal_rows_may_be():
    assert against_best(np.zeros((5, 1))) == [(0, 0, 0, True)]
    for each in against_best(np.ones((40, 5))):
        assert each.as_right and each.to_best_low < -2 / 40, "equal answers leave an interval"


def beats(one, other):
    """Whether a point is no worse than another in both figures and better in one."""
    return one != other and one[0] >= other[0] and one[1] >= other[1]


@given(PLACES)
def test_nothing_beats_the_frontier_and_something_on_it_is_as_good_as_any_other(places):
    kept = frontier(places)
    assert kept <= set(places) and not [each for each in kept if any(beats(other, each) for other in places)]
    assert all(other in kept or any(beats(each, other) for each in kept) for other in places)
    assert frontier(kept) == kept and frontier([]) == set()


def published(curve, best):
    """The AUP as its authors define it: `curve` has tokens per forward pass and accuracy in percent; speeds are distinct."""
    curve = sorted(curve)
    r, y = [each[0] for each in curve if each[1] >= curve[0][1] - 5], [each[1] for each in curve if each[1] >= curve[0][1] - 5]
    total = r[0] * y[0]
    for i in range(1, len(r)):
        w, w_before = (min(exp(-3 * (1 - height / best)), 1) for height in (y[i], y[i - 1]))
        total += 0.5 * (r[i] - r[i - 1]) * (y[i] * w + y[i - 1] * w_before)
    return total


CURVES = st.lists(st.tuples(st.integers(1, 40), st.integers(60, 100)), min_size=1, max_size=8, unique_by=lambda place: place[0])


@given(CURVES, st.integers(0, 5), st.randoms(use_true_random=False))
def test_the_aup_is_the_published_one_in_any_order(places, above, random):
    found = [(speed / 4, right / 100) for speed, right in places]
    best = (max(right for _, right in places) + above) / 100
    expected = published([(speed / 4, float(right)) for speed, right in places], 100 * best)
    assert aup(found, best) == pytest.approx(expected)
    random.shuffle(found)
    assert aup(found, best) == pytest.approx(expected)
    assert aup([*found, found[0]], best) == pytest.approx(expected), "the same point twice is that point"
