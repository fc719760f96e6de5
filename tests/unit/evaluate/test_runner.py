"""Whenever a run is broken off, it goes on to the same answers, byte for byte; and whoever decodes them."""

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest

from dlstep import LLM, SamplingParams
from dlstep.batch import facts
from dlstep.batch.checkpoint import ANSWERS, BESIDE, RUN
from dlstep.evaluate.checkpoint import SCORES, EvalCheckpoint, read
from dlstep.evaluate.items import evaluation_items, read_problems
from dlstep.evaluate.options import EvalOptions, grid_of
from dlstep.evaluate.runner import answer_all

from .conftest import copied
from .running import answers, engine, killed, run

GRID = grid_of({"accept_threshold": [0.3, 0.9]})
OPTIONS = EvalOptions(dataset_limit=12, temperature=0.5, grid=grid_of({"accept_threshold": [0.5, 0.9]}))


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    """A run with two sets of options; sampled, so that seeds count."""
    out = str(tmp_path_factory.mktemp("unbroken") / "run")
    return EvalOptions(out=out, dataset_limit=40, grid=GRID, temperature=0.7)


@pytest.fixture(scope="module")
def unbroken(options):
    """The answers of a run that nothing broke off."""
    return answers(run(options))


def test_answers_are_in_order_and_keyed(options, unbroken):
    rows = [json.loads(line) for line in unbroken.splitlines()]
    keys = [(row["task"], row["document"], row["options"]["accept_threshold"]) for row in rows]
    assert keys == [("shells", number, threshold) for threshold in (0.3, 0.9) for number in range(40)]
    assert len({row["seed"] for row in rows}) == 40, "sets of options share their noise"
    ended = [json.loads(line) for line in (Path(options.out) / BESIDE).read_text().splitlines()]
    order = [(row["options"]["accept_threshold"], row["document"]) for row in ended]
    assert sorted(order) != order, "they did not end in this order"


@pytest.mark.full
@pytest.mark.parametrize("seed", [pytest.param(0), *[pytest.param(seed, marks=pytest.mark.stress) for seed in range(1, 5)]])
@pytest.mark.parametrize("kills", [3, pytest.param(10, marks=pytest.mark.stress)])
def test_killed_at_random_moments_the_answers_are_the_same(options, unbroken, tmp_path, kills, seed, report):
    broken, random = replace(options, out=str(tmp_path / "run")), Random(seed)
    grown = [killed(broken, random.randrange(1, 2 * len(unbroken) // (kills + 1))) for _ in range(kills)]
    assert answers(run(broken)) == unbroken
    assert read(Path(broken.out)).beside.keys() == read(Path(options.out)).beside.keys()
    report(f"killed {kills} times, after {', '.join(map(str, grown))} bytes of {len(unbroken)}")


def test_stored_answers_are_not_decoded_again(options, unbroken, tmp_path, added):
    lines, beside = [text.splitlines(keepends=True) for text in (unbroken, (Path(options.out) / BESIDE).read_bytes())]
    (tmp_path / RUN).write_bytes((Path(options.out) / RUN).read_bytes())
    (tmp_path / BESIDE).write_bytes(b"".join(line for line in beside if key_of(line) != key_of(lines[7])))
    (tmp_path / ANSWERS).write_bytes(b"".join([*lines[:3], lines[7], lines[4], lines[79]]))
    assert len(read(tmp_path).rows) == 5
    assert answers(run(replace(options, out=str(tmp_path)))) == unbroken
    assert sorted(added) == sorted({*range(3, 80)} - {4, 79})
    assert read(tmp_path).beside.keys() == read(Path(options.out)).beside.keys()


def key_of(line):
    """The document and options of a line."""
    row = json.loads(line)
    return row["document"], row["options"]


@pytest.mark.parametrize(
    "change, message",
    [
        ({"temperature": 0.5}, "eval.temperature 0.7, and now it is 0.5"),
        ({"dataset_limit": 3}, "problems.shells.count 40, and now it is 3"),
        ({"problem_seed": 1}, "problems.shells.digest"),
        ({"grid": grid_of({"accept_threshold": 0.3})}, "eval.grid"),
    ],
)
@pytest.mark.usefixtures("unbroken")
def test_another_run_does_not_go_on_there(options, change, message):
    with pytest.raises(ValueError, match=f"holds a run with {message}.*give another folder"):
        run(replace(options, **change))


@pytest.mark.parametrize("name", ["decoding", "torch"])
def test_other_code_or_libraries_do_not_go_on(options, monkeypatch, name):
    monkeypatch.setattr("dlstep.evaluate.runner.code_of", lambda given: facts.code_of(given) | {name: "another"})
    with pytest.raises(ValueError, match=f"holds a run with versions.{name} .*, and now it is 'another': give another folder"):
        run(options)


ITEMS = evaluation_items(engine(), OPTIONS, read_problems(OPTIONS))
ROOMY = LLM("tiny-bd", max_num_reqs=32).engine


def answered(engine, items):
    """The lines of the answers to items, and what belongs to them."""
    with TemporaryDirectory() as folder:
        with closing(EvalCheckpoint(Path(folder), {"key": {}})) as checkpoint:
            rows = answer_all(engine, items, checkpoint)
        return [(row, line) for row, line in zip(rows, read(folder).beside.values(), strict=True)]


def test_rows_are_those_of_generate():
    found = answered(ROOMY, ITEMS)
    for threshold in (0.5, 0.9):
        own = [place for place, item in enumerate(ITEMS) if item.params.strategy_options == (("accept_threshold", threshold),)]
        params = SamplingParams(max_tokens=64, temperature=0.5, strategy_options=(("accept_threshold", threshold),))
        outputs = LLM("tiny-bd").generate([ITEMS[place].prompt for place in own], params)
        for place, output in zip(own, outputs, strict=True):
            row, beside = found[place]
            assert (row["answer"], tuple(row["tokens"]), row["steps"]) == (output.text, output.token_ids, output.steps)
            assert row["finish"] == output.finish_reason
            assert beside["forwards"] == output.nfe and len(beside["probabilities"]) == len(row["tokens"])


def test_scores_are_written_once_all_answers_are_there(options, unbroken, tmp_path):
    folder = copied(Path(options.out), tmp_path / "run")
    (folder / SCORES).unlink()
    assert {row["note"] for row in read(folder).rows.values()} == {"not scored"}
    assert answers(run(replace(options, out=str(folder)))) == unbroken
    assert (folder / SCORES).read_bytes() == (Path(options.out) / SCORES).read_bytes()
