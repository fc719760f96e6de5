"""Values of options that texts mean, and which sets of them are tried."""

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from dlstep import strategies
from dlstep.evaluate.space import Space, TuneOptions, space_of, values_of
from dlstep.evaluate.tuning import ENOUGH, plan

from .running import engine

MULTI_BD = strategies.PLUGINS.value("multi_bd")


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("accept_threshold", "0.3:0.5:3", (0.3, 0.4, 0.5)),
        ("accept_threshold", "0:1:5", (0.0, 0.25, 0.5, 0.75, 1.0)),
        ("accept_threshold", "0.3:0.99:4", (0.3, 0.53, 0.76, 0.99)),
        ("accept_threshold", "0.90001:0.90002:3", (0.90001, 0.900015, 0.90002)),
        ("accept_threshold", "0.9, 0.5,0.9", (0.5, 0.9)),
        ("accept_threshold", "[0.9,0.5]", (0.5, 0.9)),
        ("accept_threshold", "1", (1.0,)),
        ("buffer_size", "1:4", (1, 2, 3, 4)),
        ("buffer_size", "1:33:3", (1, 17, 33)),
        ("buffer_size", "4,1", (1, 4)),
        ("fold_commits", "true,false", (True, False)),
        ("order", "confidence,entropy", ("confidence", "entropy")),
    ],
)
def test_values_are_those_that_a_text_means(name: str, text: str, expected: tuple[object, ...]) -> None:
    found = values_of(name, text, MULTI_BD)
    assert found == expected and [*map(type, found)] == [*map(type, expected)]


@given(st.floats(0.0, 0.5), st.floats(0.51, 1.0), st.integers(2, 100))
def test_a_range_ascends_from_end_to_end(low: float, high: float, steps: int) -> None:
    found = values_of("accept_threshold", f"{low:.4f}:{high:.4f}:{steps}", MULTI_BD)
    assert len(found) == steps and list(found) == sorted(found)
    assert (found[0], found[-1]) == (pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ([], "--over names no option: give a range or values, as accept_threshold=0.3:0.99"),
        (["accept_threshold"], "--over 'accept_threshold' names no values"),
        (["accept_threshold="], "names no values"),
        (["=0.5"], "names no values"),
        (["accept_threshold=0.5,,0.7"], "--over accept_threshold has an empty value"),
        (["accept_threshold=0.9:0.3"], "a range is LOW:HIGH or LOW:HIGH:COUNT, LOW below HIGH"),
        (["accept_threshold=0.3:0.9:1"], "COUNT must be a whole number from 2 to 1000"),
        (["accept_threshold=0.3:0.9:2.5"], "COUNT must be a whole number"),
        (["accept_threshold=0.1:0.2:3:4"], "a range is LOW:HIGH"),
        (["accept_threshold=low:high"], "a range is LOW:HIGH"),
        (["accept_threshold=.nan,0.5"], "values must be finite numbers"),
        (["accept_threshold={a: 1}"], "--over accept_threshold"),
        (["accept_threshold=0.5"], "leaves one set of options and nothing to choose"),
        (["accept_threshold=0.5,0.6", "accept-threshold=0.7"], "names accept_threshold twice"),
        (["accept_threshold=0.5,1.5"], "--over accept_threshold=1.5: .*accept_threshold must be at most 1.0, got 1.5"),
        (["accept_treshold=0.5,0.6"], "MultiBD has no option 'accept_treshold'.*did you mean accept_threshold?"),
        (["block_size=8,16"], "--over block_size=16: its options would give it other blocks .*: set them for the engine"),
        (["page_size=8,16"], "it is the engine's, not a request's: tune once for each, with --page_size"),
        (["temperature=0,1"], "give it for all requests, as --temperature"),
        (["rule=threshold,quota"], "--over rule: each rule has different options, so tune once per rule, with --rule"),
        (["buffer_size=1,\x1b[2J"], "--over buffer_size"),
    ],
)
def test_what_cannot_be_varied_is_told(over: list[str], message: str) -> None:
    first = engine().first
    with pytest.raises(ValueError, match=message) as printed:
        space_of(over, first.config, first.strategy)
    assert "\x1b" not in str(printed.value)


SIZES = st.lists(st.integers(1, 6), min_size=1, max_size=4)


def of_sizes(sizes: list[int]) -> Space:
    """A space with so many values of each option."""
    return Space(tuple((f"option_{axis}", tuple(range(size))) for axis, size in enumerate(sizes)))


@given(SIZES, st.integers(1, 1300))
def test_sets_are_distinct_inside_and_as_many_as_asked_for(sizes: list[int], most: int) -> None:
    space = of_sizes(sizes)
    found = space.spread(most)
    assert len(found) == len({*found}) == min(most, space.size) and found == space.spread(most)
    assert {*found} <= {*space.spread(space.size)}


@given(st.integers(2, 300), st.integers(2, 300))
def test_values_of_one_option_are_evenly_spaced_from_end_to_end(size: int, most: int) -> None:
    found = [dict(options)["option_0"] for options in of_sizes([size]).spread(most)]
    gaps = {later - earlier for earlier, later in pairwise(found)}
    assert (found[0], found[-1]) == (0, size - 1) and max(gaps) - min(gaps) <= 1


@given(SIZES.filter(lambda sizes: len(sizes) > 1), st.integers(3, 6))
def test_of_several_options_every_value_is_tried_alike(sizes: list[int], times: int) -> None:
    space, most = of_sizes(sizes), times * max(sizes)
    if most < space.size:
        found = [dict(options) for options in space.spread(most)]
        for name, values in space.axes:
            used = [sum(options[name] == value for options in found) for value in values]
            assert min(used) >= 1 and max(used) <= 2 * most / len(values) + 2, (name, used)


@given(SIZES, st.integers(1, 500), st.floats(0.01, 1.0), st.integers(2, 60))
def test_a_plan_spends_its_share_on_sets_with_enough_problems(
    sizes: list[int], problems: int, share: float, trials: int
) -> None:
    space = of_sizes([*sizes, 2])
    sets, each = plan(space, TuneOptions(share=share, trials=trials), problems)
    answers, paid = len(sets) * each, share * space.size * problems
    assert 2 <= len(sets) <= min(trials, space.size) and 1 <= each <= problems
    assert answers <= max(1.5 * paid, 2.0)
    if len(sets) > 2:
        assert each >= min(problems, ENOUGH) * 0.7
    if each < problems and len(sets) > 2:
        assert answers >= 0.7 * paid
