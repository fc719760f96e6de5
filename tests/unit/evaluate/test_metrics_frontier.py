"""Laws of frontiers: what they keep, and the published AUP."""

from math import exp
from random import Random

import pytest
from hypothesis import given, strategies as st

from dlstep.evaluate.metrics import Answers, Point, aup, frontier

SIDE = 12  # of the lattice that areas are counted on
PLACES = st.lists(st.tuples(st.integers(0, SIDE), st.integers(0, SIDE)), min_size=1, max_size=12)


def point(speed: int, right: int, name: int = 0, *, forwards: int = 4, count: int = SIDE) -> Point:
    """`speed / forwards` tokens per forward pass, and `right` of `count` answers."""
    return Point((("x", name),), Answers(count=count, score=float(right), tokens=speed, forwards=forwards))


def points(places: list[tuple[int, int]]) -> list[Point]:
    return [point(*place, name) for name, place in enumerate(places)]


def figures(point: Point) -> tuple[float, float]:
    return point.speed, point.accuracy


def beats(one: Point, other: Point) -> bool:
    """Whether a point is no worse than another in both figures and better in one."""
    return figures(one) != figures(other) and one.speed >= other.speed and one.accuracy >= other.accuracy


@given(PLACES)
def test_nothing_beats_the_frontier_and_something_on_it_is_as_good_as_any_other(
    places: list[tuple[int, int]],
) -> None:
    found = points(places)
    kept = frontier(found)
    assert all(each in found for each in kept)
    assert not [each for each in kept if any(beats(other, each) for other in found)]
    for other in found:
        if other not in kept:
            assert any(beats(each, other) or figures(each) == figures(other) for each in kept), other
    speeds, heights = [each.speed for each in kept], [each.accuracy for each in kept]
    assert speeds == sorted(set(speeds)) and heights == sorted(set(heights), reverse=True)
    assert frontier(kept) == kept


def test_of_equal_points_the_frontier_keeps_the_first() -> None:
    assert frontier([point(2, 3, 1), point(2, 3, 0)]) == [point(2, 3, 1)]
    assert frontier([]) == []


def published(curve: list[tuple[float, float]], best: float) -> float:
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
def test_the_aup_is_the_published_one_in_any_order(places: list[tuple[int, int]], above: int, random: Random) -> None:
    found = [point(*place, count=100) for place in places]
    best = (max(right for _, right in places) + above) / 100
    expected = published([(speed / 4, float(right)) for speed, right in places], 100 * best)
    assert aup(found, best) == pytest.approx(expected)
    random.shuffle(found)
    assert aup(found, best) == pytest.approx(expected)
    assert aup([*found, found[0]], best) == pytest.approx(expected), "the same point twice is that point"


@given(st.permutations([(4, 90), (4, 80), (8, 88), (8, 86), (12, 87)]))
def test_of_points_of_equal_speed_the_most_accurate_counts_for_the_aup(places: list[tuple[int, int]]) -> None:
    found = aup([point(*place, count=100) for place in places], 0.9)
    assert found == pytest.approx(published([(1.0, 90.0), (2.0, 88.0), (3.0, 87.0)], 90.0))


def test_the_aup_by_hand() -> None:
    one = point(8, 90, count=100)  # 2 tokens per forward pass
    assert aup([one], 0.9) == 180  # one rectangle: 2 * 90
    two = [one, point(16, 90, count=100)]
    assert aup(two, 0.9) == pytest.approx(360)  # as right at twice the speed: 180 + 2 * 90
    # y_max of another method: both heights weigh exp(-3 * (1 - 90/100)) = exp(-0.3), the first rectangle does not
    assert aup(two, 1.0) == pytest.approx(180 + 2 * 90 * exp(-0.3)) == pytest.approx(313.347277)
    # 86 is within 5 points of 90 and weighs exp(-3 * 4/90); 84 is not and does not count
    assert aup([one, point(16, 86, count=100), point(40, 84, count=100)], 0.9) == pytest.approx(
        180 + 0.5 * 2 * (86 * exp(-12 / 90) + 90)
    )
    assert aup([one, point(16, 85, count=100)], 0.9) > 180, "5 points less still count"
    assert aup([one, point(16, 100, count=100)], 0.9) == pytest.approx(180 + 190), "no weight is above 1"


def test_the_aup_of_nothing_is_0() -> None:
    assert aup([], 0.9) == 0
    assert aup([point(8, 0), point(9, 0)], 0.0) == 0  # all wrong
