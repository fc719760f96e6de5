"""The search of a tuner as a function of what is known: laws over made-up figures of every kind."""

from collections.abc import Callable
from itertools import pairwise, product
from random import Random

import numpy as np
import pytest
from hypothesis import assume, example, given, strategies as st

from dlstep.core.options import StrategyOptions
from dlstep.evaluate.frontier import Point, frontier, hypervolume
from dlstep.evaluate.metrics import Answers
from dlstep.evaluate.search import (
    SURE,
    WORTH,
    Bisection,
    Budget,
    Place,
    Round,
    Space,
    doubt,
    points_of,
    rounds,
    worthy,
)

Figures = Callable[[StrategyOptions, int], Answers]  # of a set of options and the number of a problem
Table = dict[StrategyOptions, list[Answers]]
TURNS = 200  # rounds; no search may take as many

spaces = st.lists(st.integers(1, 9), min_size=1, max_size=3).map(
    lambda sizes: Space(tuple((f"option_{axis}", tuple(range(size))) for axis, size in enumerate(sizes)))
)
budgets = st.builds(Budget, first=st.integers(1, 6), most=st.integers(1, 24), share=st.floats(0.0, 1.0))


def every(space: Space) -> list[Place]:
    """All places of a space."""
    return list(product(*(range(len(values)) for _, values in space.axes)))


def noisy(seed: int) -> Figures:
    """Figures at random, alike for neighbours; some sets are refused, and some have no right answer."""

    def answer(options: StrategyOptions, problem: int) -> Answers:
        own = Random(f"{seed}/{options}")
        kind, level, forwards = own.random(), own.random(), own.randrange(1, 9)
        if kind < 0.1:
            return Answers.counted(score=0.0, tokens=0, forwards=0, steps=0, failed=True)
        right = kind < 0.9 and Random(f"{seed}/{problem}").random() < level
        return Answers.counted(score=float(right), tokens=24, forwards=forwards, steps=forwards)

    return answer


def searched(space: Space, budget: Budget, figures: Figures, most: int = 32) -> tuple[list[Round], Table]:
    """A whole search that asks for one round after the other, and all that it knows at the end."""
    known: Table = {}
    for _ in range(TURNS):
        found = rounds(space, budget, known, lambda space: Bisection(space, most))
        if not found[-1].missing:
            return found, known
        for options in found[-1].missing:
            answers = known.setdefault(options, [])
            assert len(answers) < found[-1].problems, "it asks for what is known"
            answers += [figures(options, problem) for problem in range(len(answers), found[-1].problems)]
    raise AssertionError("the search does not end")


@given(spaces, budgets, st.integers(0, 1 << 30), st.sampled_from([1, 8, 32]))
def test_a_search_ends_and_goes_on_from_any_answers(space: Space, budget: Budget, seed: int, most: int) -> None:
    found, known = searched(space, budget, noisy(seed), most)
    inside = {space.at(place) for place in every(space)}
    assert all(set(each.tried) <= inside and len(set(each.tried)) == len(each.tried) > 0 for each in found)
    assert [each.problems for each in found] == sorted(each.problems for each in found)
    assert found[0].problems == min(budget.first, budget.most) and found[-1].problems <= budget.most
    random = Random(seed)
    part = {options: answers[: random.randrange(len(answers) + 1)] for options, answers in known.items()}
    again = rounds(space, budget, part, lambda space: Bisection(space, most))
    for one, other in zip(again, found, strict=False):
        assert (one.problems, one.tried) == (other.problems, other.tried), "broken off and resumed, it goes another way"
    assert len(again) <= len(found)
    lacking = {options for options in again[-1].tried if len(part.get(options, ())) < again[-1].problems}
    assert set(again[-1].missing) == lacking and not any(each.missing for each in again[:-1])


@given(spaces, budgets, st.integers(0, 1 << 30), st.sampled_from([1, 8, 32]))
def test_what_was_dropped_is_not_tried_again(space: Space, budget: Budget, seed: int, most: int) -> None:
    found, _ = searched(space, budget, noisy(seed), most)
    gone: set[StrategyOptions] = set()
    for one, other in pairwise(found):
        gone |= {*one.tried} - {*other.tried}
        assert not gone & {*other.tried}
        assert other.problems > one.problems or {*other.tried} > {*one.tried}, "a round without anything new"


@given(spaces, budgets, st.integers(0, 1 << 30))
def test_behind_the_first_round_the_budget_holds(space: Space, budget: Budget, seed: int) -> None:
    def dear(options: StrategyOptions, problem: int) -> Answers:  # every answer costs the same
        return Answers.counted(score=noisy(seed)(options, problem).score, tokens=24 + len(options), forwards=4, steps=4)

    found, known = searched(space, budget, dear, 8)
    first = len(found[0].tried) * found[0].problems
    assert sum(map(len, known.values())) <= max(first, budget.share * space.size * budget.most)


def exact(accuracy: float, speed: float) -> Callable[[int], Answers]:
    """Figures without noise: each answer scores the accuracy, and has so many tokens a forward."""
    return lambda problem: Answers.counted(score=accuracy, tokens=int(1000 * speed), forwards=1000, steps=1000)


@given(
    st.lists(st.tuples(st.floats(0.1, 1.0), st.floats(0.5, 8.0)), min_size=1, max_size=20),
    st.integers(1, 20),
)
@example([(1.0, 1.0)] * 5, 4)
@example([(0.9, 2.0), (0.9, 1.0), (0.5, 4.0)], 20)
def test_without_noise_the_whole_frontier_is_found_but_for_what_is_worth_little(
    figures: list[tuple[float, float]], first: int
) -> None:
    space = Space((("option", tuple(range(len(figures)))),))
    budget = Budget(first, 64, 1.0)
    found, known = searched(space, budget, lambda options, problem: exact(*figures[options[0][1]])(problem))
    lowest = max(accuracy for accuracy, _ in figures) / 2  # what lies below counts nothing
    whole = hypervolume(points_of({space.at(place): place for place in every(space)}, known, first), accuracy=lowest)
    last = points_of(dict.fromkeys(found[-1].tried, (0,)), known, found[-1].problems)
    assert hypervolume(last, accuracy=lowest) >= (1 - WORTH * len(figures)) * whole
    assert max(point.accuracy for point in last) >= max(accuracy for accuracy, _ in figures) - WORTH * len(figures)


@given(st.integers(2, 60), st.sampled_from([2, 3, 8, 32]))
def test_on_one_line_of_trades_every_value_is_tried(count: int, most: int) -> None:
    """The more accurate the slower: all of it is the frontier, and all that lies between neighbours is looked at."""
    space = Space((("option", tuple(range(count))),))

    def figures(options: StrategyOptions, problem: int) -> Answers:
        return exact(1.0 - options[0][1] / (2 * count), 1.0 + options[0][1] / count)(problem)

    found, _ = searched(space, Budget(4, 4, 1.0), figures, most)
    assert len(found[0].tried) <= most or most < 2
    assert set(found[-1].tried) == {space.at(place) for place in every(space)}


def test_a_finer_value_beside_the_frontier_is_found_in_two_dimensions() -> None:
    """One peak in a plane of 17 x 17, far from every place of the coarse grid but on the way between two of its best."""
    space = Space((("one", tuple(range(17))), ("other", tuple(range(17)))))

    def figures(options: StrategyOptions, problem: int) -> Answers:
        one, other = dict(options)["one"], dict(options)["other"]
        return exact(1.0 - one / 20 - (other - 6) ** 2 / 400, 1.0 + one - (other - 6) ** 2 / 100)(problem)

    found, known = searched(space, Budget(4, 16, 0.5), figures)
    assert len(found[0].tried) <= 32 and len(known) < space.size / 2
    every_point = [Point(space.at(place), figures(space.at(place), 0)) for place in every(space)]
    last = [Point(options, figures(options, 0)) for options in found[-1].tried]
    assert hypervolume(last) > 0.97 * hypervolume(every_point)


def points(scores: list[list[float]], speeds: list[float]) -> tuple[list[Point], Table]:
    """Points with these scores of their answers, and the answers."""
    known: Table = {
        (("option", number),): [
            Answers.counted(score=score, tokens=int(1000 * speed), forwards=1000, steps=1000) for score in each
        ]
        for number, (each, speed) in enumerate(zip(scores, speeds, strict=True))
    }
    return points_of(dict.fromkeys(known, (0,)), known, len(scores[0])), known


tables = st.integers(1, 12).flatmap(
    lambda count: st.lists(
        st.tuples(
            st.lists(st.sampled_from([0.0, 1.0]), min_size=count, max_size=count), st.sampled_from([1.0, 1.5, 2.0, 3.0, 5.0])
        ),
        min_size=1,
        max_size=8,
    )
)


@given(tables)
def test_what_is_dropped_adds_little(rows: list[tuple[list[float], float]]) -> None:
    made, known = points([scores for scores, _ in rows], [speed for _, speed in rows])
    kept = worthy(made, known)
    assert kept and {*kept} <= {*made} and len({*kept}) == len(kept)
    lowest = max(point.accuracy for point in made) / 2
    whole = hypervolume(made, accuracy=lowest)
    assert hypervolume(kept, accuracy=lowest) >= (1 - WORTH * len(made)) * whole - 1e-9


@given(tables)
def test_what_is_at_least_as_fast_and_more_accurate_up_to_chance_is_kept(rows: list[tuple[list[float], float]]) -> None:
    """Of two points with the same speed, the less accurate one is dropped only if it is surely so."""
    (scores, speed), *_ = rows
    made, known = points([[1.0] * len(scores), scores], [speed, speed])
    apart = 1.0 - sum(scores) / len(scores)
    margin = SURE * float(np.std([1 - score for score in scores] + [1, -1])) / (len(scores) + 2) ** 0.5
    assume(abs(apart - margin) > 0.02)
    assert (len(worthy(made, known)) == 2) == (apart < margin)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=50))
def test_doubt_is_that_of_the_paired_difference_with_two_more_problems(pairs: list[tuple[float, float]]) -> None:
    (one, other), known = points([[a for a, _ in pairs], [b for _, b in pairs]], [1.0, 2.0])
    apart = [a - b for a, b in pairs] + [1.0, -1.0]
    assert doubt(one, other, known) == pytest.approx(SURE * float(np.std(apart)) / len(apart) ** 0.5, abs=1e-9)
    assert doubt(one, other, known) == pytest.approx(doubt(other, one, known), abs=1e-12)


def test_a_few_equal_answers_drop_nobody() -> None:
    """All answers to 25 problems are right: the slower set may still be the better one, and answers more of them."""
    made, known = points([[1.0] * 25, [1.0] * 25, [1.0] * 25], [3.6, 4.4, 6.5])
    assert len(worthy(made, known)) == 3
    made, known = points([[1.0] * 2000, [1.0] * 2000, [1.0] * 2000], [3.6, 4.4, 6.5])
    assert [point.speed for point in worthy(made, known)] == [6.5]


def test_one_that_is_slower_and_wrong_more_often_goes_first() -> None:
    made, known = points([[1.0, 0.0] * 50, [1.0] * 100, [1.0] * 90 + [0.0] * 10], [2.0, 4.0, 6.0])
    assert [point.speed for point in worthy(made, known)] == [4.0, 6.0]
    assert frontier(made)[0].speed == 4.0


@pytest.mark.parametrize(("sizes", "most", "expected"), [((20,), 32, 20), ((17, 17), 32, 25), ((5, 4), 4, 4), ((1, 1), 1, 1)])
def test_the_coarse_grid_fits(sizes: tuple[int, ...], most: int, expected: int) -> None:
    space = Space(tuple((str(axis), tuple(range(size))) for axis, size in enumerate(sizes)))
    places = space.coarse(most)
    assert len(places) == expected == len({*places})
    assert (0,) * len(sizes) in places and tuple(size - 1 for size in sizes) in places


def test_halfway_between_neighbours_of_the_frontier_is_proposed() -> None:
    space = Space((("one", tuple(range(9))), ("other", tuple(range(9)))))
    tried = {
        place: Point(space.at(place), exact(accuracy, speed)(0))
        for place, accuracy, speed in (((0, 0), 0.9, 1.0), ((8, 4), 0.5, 4.0), ((8, 8), 0.4, 1.0))
    }
    proposed = Bisection(space).more(tried)
    assert {(4, 2), (4, 0), (0, 2), (8, 2), (4, 4)} <= {*proposed}, "between the two, along each option and both"
    assert (8, 6) in proposed and (1, 1) not in proposed, "around a point, halfway to the values that were tried"


def test_of_two_that_replace_one_another_one_is_kept() -> None:
    scores = [[1.0] * right + [0.0] * (2000 - right) for right in (1900, 1898, 1200)]
    made, known = points(scores, [3.0, 3.01, 6.0])
    assert [point.speed for point in worthy(made, known)] in ([3.0, 6.0], [3.01, 6.0])
