"""Parts of a tuner: the values that texts mean, proposals by Optuna, loads and the table that follows from them."""

import sqlite3
from itertools import count, pairwise
from pathlib import Path

import pytest
import yaml
from hypothesis import given, strategies as st
from running import engine

from dlstep import LLM, SamplingParams, strategies
from dlstep.cli.tune_load import loads_of, table_text
from dlstep.evaluate.frontier import Point
from dlstep.evaluate.items import items_of, read_documents
from dlstep.evaluate.load import LEAST, ROUNDS, Rate, chosen_at, joined, measured, policy_rows, rates
from dlstep.evaluate.metrics import Answers
from dlstep.evaluate.options import EvalOptions, grid_of
from dlstep.evaluate.proposals import WAVE, Sampled, write_study
from dlstep.evaluate.search import Budget, Space, rounds
from dlstep.evaluate.space import space_of, values_of
from dlstep.policy import policy_of

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
        (["accept_threshold=0.5"], "leaves one set of options, and nothing to choose"),
        (["accept_threshold=0.5,0.6", "accept-threshold=0.7"], "names accept_threshold twice"),
        (["accept_threshold=0.5,1.5"], "--over accept_threshold=1.5: .*accept_threshold must be at most 1.0, got 1.5"),
        (["accept_treshold=0.5,0.6"], "MultiBD has no option 'accept_treshold'.*did you mean accept_threshold?"),
        (["block_size=8,16"], "--over block_size=16: its options would give it other blocks .*: set them for the engine"),
        (["page_size=8,16"], "it is the engine's, not a request's: tune once for each, with --page_size"),
        (["temperature=0,1"], "give it for all requests, as --temperature"),
        (["rule=threshold,quota"], "--over rule: a rule has options of its own, so tune once for each rule, with --rule"),
        (["buffer_size=1,\x1b[2J"], "--over buffer_size"),
        (["accept_threshold=0.1:0.9:1000", "add_block_threshold=0.1:0.9:20"], "20000 sets of options: give fewer values"),
    ],
)
def test_what_cannot_be_varied_is_told(over: list[str], said: str) -> None:
    first = engine().first
    with pytest.raises(ValueError, match=said) as told:
        space_of(over, first.config, first.strategy)
    assert "\x1b" not in str(told.value)


THREE = Space(
    (
        ("accept_threshold", tuple(round(0.3 + 0.05 * step, 2) for step in range(14))),
        ("add_block_threshold", tuple(step / 10 for step in range(10))),
        ("buffer_size", (1, 2, 3, 4)),
    )
)


def figures(options: dict[str, float], problem: int) -> Answers:
    """A trade of accuracy for speed in two of the options; a large buffer is better, early blocks are."""
    right = (problem * 7919 % 100) / 100 < 0.4 + 0.6 * options["accept_threshold"] - 0.05 * options["add_block_threshold"]
    forwards = (
        4
        + round(20 * options["accept_threshold"] + 10 * options["add_block_threshold"])
        + 3 * (4 - int(options["buffer_size"]))
    )
    return Answers.counted(score=float(right), tokens=48, forwards=forwards, steps=forwards)


def test_with_three_options_optuna_proposes_the_same_to_whoever_asks_again() -> None:
    known: dict[object, list[Answers]] = {}
    turns = count()
    while True:
        found = rounds(THREE, Budget(8, 32, 0.3), known, lambda space: Sampled(space, trials=36))  # pyright: ignore[reportArgumentType]
        if not found[-1].missing or next(turns) > 50:
            break
        for options in found[-1].missing:
            known[options] = [figures(dict(options), problem) for problem in range(found[-1].problems)]
    assert len(found[0].tried) == WAVE and 2 * WAVE < len(known) <= 36 and next(turns) <= 50
    part = dict(list(known.items())[:20])
    again = rounds(THREE, Budget(8, 32, 0.3), part, lambda space: Sampled(space, trials=36))  # pyright: ignore[reportArgumentType]
    assert [each.tried for each in again] == [each.tried for each in found[: len(again)]]
    best = max(dict(options)["buffer_size"] for options in found[-1].tried)
    assert best == 4, "what is better in every way is found"


def test_optuna_is_not_asked_for_more_than_there_is() -> None:
    small = Space((("accept_threshold", (0.1, 0.2)), ("add_block_threshold", (0.1, 0.2)), ("buffer_size", (1, 2))))
    assert 0 < len({*Sampled(small).first()}) <= 8
    assert len(Sampled(THREE, trials=5).first()) == 5


def test_the_study_is_one_that_optuna_reads(tmp_path: Path) -> None:
    import optuna

    sums = [figures({"accept_threshold": 0.5, "add_block_threshold": 0.1, "buffer_size": size}, 0) for size in (1, 4)]
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


def test_measurements_of_one_set_at_one_load_are_joined() -> None:
    each = [rate(1, 1, 5.0), rate(2, 1, 7.0), rate(1, 8, 6.0), rate(1, 1, 9.0), rate(1, 1, 6.0)]
    found = joined(each)
    assert found == [rate(1, 1, 5.0, 9.0, 6.0), rate(2, 1, 7.0), rate(1, 8, 6.0)]
    assert found[0].tokens_per_second == 6.0 and found[0].noise == pytest.approx(1.4826)


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
    each = list(rates(engine(), groups, [2, 5], 1))
    assert [(one.live, dict(one.options)["buffer_size"]) for one in each] == [(2, 1), (2, 2), (5, 1), (5, 2)]


@pytest.mark.parametrize(
    ("given_loads", "said"),
    [([], "above 0, got"), ([0, 1], "above 0, got"), ([1, 129], "129 requests are more than max_num_reqs=128")],
)
def test_a_load_that_cannot_be_is_told(given_loads: list[int], said: str) -> None:
    assert loads_of([8, 1, 8], 128) == [1, 8] and loads_of(4, 128) == [4]
    with pytest.raises(ValueError, match=said):
        loads_of(given_loads, 128)
