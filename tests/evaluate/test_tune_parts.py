"""Parts of a tuner: the values that texts mean, which sets are tried, the study, loads and the table that follows from them."""

import sqlite3
from itertools import count, pairwise
from pathlib import Path

import pytest
import yaml
from hypothesis import given, strategies as st
from running import engine

from dlstep import LLM, SamplingParams, strategies
from dlstep.cli.tune_load import loads_of, table_text
from dlstep.engine.buffer_policy import policy_of
from dlstep.evaluate.items import items_of, read_documents
from dlstep.evaluate.load import LEAST, ROUNDS, Rate, chosen_at, measured, policy_rows, rates
from dlstep.evaluate.metrics import Answers, Point
from dlstep.evaluate.options import EvalOptions, grid_of
from dlstep.evaluate.space import Space, TuneOptions, space_of, values_of
from dlstep.evaluate.tuning import ENOUGH, plan, write_study

MULTI_BD = strategies.SHELF.value("multi_bd")


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
    ("over", "said"),
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
        (["rule=threshold,quota"], "--over rule: a rule has options of its own, so tune once for each rule, with --rule"),
        (["buffer_size=1,\x1b[2J"], "--over buffer_size"),
    ],
)
def test_what_cannot_be_varied_is_told(over: list[str], said: str) -> None:
    first = engine().first
    with pytest.raises(ValueError, match=said) as told:
        space_of(over, first.config, first.strategy)
    assert "\x1b" not in str(told.value)


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


def test_the_study_is_one_that_optuna_reads(tmp_path: Path) -> None:
    import optuna

    sums = [Answers.counted(score=1.0, tokens=48, forwards=forwards, steps=forwards) for forwards in (20, 10)]
    space = Space((("buffer_size", (1, 4)), ("order", ("confidence", "entropy")), ("accept_threshold", (0.5, 0.9))))
    points = [Point(space.at((place, place, place)), each) for place, each in enumerate(sums)]
    for _ in range(2):  # the second time in place of the first
        write_study(tmp_path / "study.db", space, points)
    (name,) = optuna.get_all_study_names(f"sqlite:///{tmp_path / 'study.db'}")
    study = optuna.load_study(study_name=name, storage=f"sqlite:///{tmp_path / 'study.db'}")
    assert [trial.params for trial in study.trials] == [dict(point.options) for point in points]
    assert [trial.values for trial in study.trials] == [[point.accuracy, point.speed] for point in points]
    (tmp_path / "text.db").write_text("no database " * 1000)
    with pytest.raises(ValueError, match="holds no study of Optuna: give another file"):
        write_study(tmp_path / "text.db", space, points)
    with sqlite3.connect(tmp_path / "study.db") as base:
        assert base.execute("select count(*) from trials").fetchone() == (2,)
    base.close()


def rate(size: int, live: int, *each: float) -> Rate:
    """A rate with a size of the buffer."""
    return Rate((("buffer_size", size),), live, each)


def test_the_fastest_that_is_accurate_enough_is_chosen_and_noise_decides_nothing() -> None:
    answers = {
        (("buffer_size", size),): Answers.counted(score=score, tokens=1, forwards=1, steps=1)
        for size, score in ((1, 1.0), (2, 0.99), (4, 0.5))
    }
    found = [rate(1, 1, 90, 100, 110), rate(2, 1, 101, 102, 103), rate(4, 1, 900, 900, 900)]
    found += [rate(1, 8, 99, 100, 101), rate(2, 8, 150, 151, 152), rate(4, 8, 10, 10, 10)]
    chosen = chosen_at(found, answers, 0.98)
    assert [dict(chosen[live].options)["buffer_size"] for live in (1, 8)] == [1, 2]
    assert dict(chosen_at(found, answers, 0.5)[1].options) == {"buffer_size": 4}
    assert dict(chosen_at(found, answers, 1.0)[8].options) == {"buffer_size": 1}


def test_a_rate_is_a_median_and_its_noise_that_of_one_measurement() -> None:
    found = rate(1, 1, 5.0, 9.0, 6.0)
    assert found.tokens_per_second == 6.0 and found.noise == pytest.approx(1.4826)


@given(st.lists(st.integers(1, 300), min_size=1, max_size=6, unique=True), st.data())
def test_a_table_gives_each_measured_load_what_was_chosen_for_it(loads: list[int], data: st.DataObject) -> None:
    loads = sorted(loads)
    sizes = [data.draw(st.integers(1, 3)) for _ in loads]
    rows = policy_rows({live: rate(size, live, 1.0) for live, size in zip(loads, sizes, strict=True)})
    policy = policy_of(yaml.safe_load(table_text(rows)))
    assert policy is not None

    def at(live: int) -> int:
        return dict(policy.applied(SamplingParams(), live).strategy_options)["buffer_size"]

    assert [at(live) for live in loads] == sizes
    assert len(rows) <= 1 + sum(one != other for one, other in pairwise(sizes))
    for live in range(1, 2 * loads[-1]):
        near = min(loads, key=lambda load: (max(load, live) / min(load, live), load))
        assert at(live) == sizes[loads.index(near)], live


def test_the_rate_of_a_load_counts_whole_answers_over_time() -> None:
    asked = EvalOptions(dataset_limit=5, grid=grid_of({"buffer_size": [1, 2]}))
    items = items_of(asked, read_documents(asked))
    mine = [item for item in items if dict(item.options)["buffer_size"] == 1]
    ticks = count()
    found = measured(engine(), mine, 3, iter(range(1000)), lambda: next(ticks))  # a clock that is read three times
    outputs = LLM("tiny-bd", buffer_size=1).generate(
        [str(item.prompt) for item in mine], SamplingParams(max_tokens=64), progress=False
    )
    least, most = (bound(len(output.token_ids) for output in outputs) for bound in (min, max))
    assert max(LEAST, ROUNDS * 3) * least <= found <= (max(LEAST, ROUNDS * 3) + 3) * most
    groups = {item.options: [each for each in items if each.options == item.options] for item in items}
    shown: list[int] = []
    each = rates(engine(), groups, [2, 5], 3, shown.append)
    assert shown == list(range(1, 13)) and [len(one.each) for one in each] == [3] * 4
    assert [(one.live, dict(one.options)["buffer_size"]) for one in each] == [(2, 1), (2, 2), (5, 1), (5, 2)]


@pytest.mark.parametrize(
    ("given_loads", "said"),
    [([], "above 0, got"), ([0, 1], "above 0, got"), ([1, 129], "129 requests are more than max_num_reqs=128")],
)
def test_a_load_that_cannot_be_is_told(given_loads: list[int], said: str) -> None:
    assert loads_of([8, 1, 8], 128) == [1, 8] and loads_of(4, 128) == [4]
    with pytest.raises(ValueError, match=said):
        loads_of(given_loads, 128)
