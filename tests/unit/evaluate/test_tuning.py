"""A tuner's run: whenever it is broken off it goes on to the same result, and its figures are those of its answers."""

import json
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from dlstep import LLM, SamplingParams
from dlstep.cli.tune_table import as_json
from dlstep.evaluate.answerer_pool import Answering
from dlstep.evaluate.checkpoint import ANSWERS, RUN
from dlstep.evaluate.items import read_documents
from dlstep.evaluate.metrics import frontier, knee
from dlstep.evaluate.options import EvalOptions
from dlstep.evaluate.space import TuneOptions
from dlstep.evaluate.tuning import TuningResult, chosen_of, parted, problems_of, tune
from dlstep.tiny import problems, score

from .running import engine, killed_with
from .scripted_pool import TOKENS, BrokenOffError, ScriptedPool, trade

OVER = ("accept_threshold=0.3:0.98:17", "add_block_threshold=0.1,0.3,0.9")
ASKED = TuneOptions(over=OVER, problems=24, held_out=16, resume=True)


def searched(folder: Path, pool: ScriptedPool | Answering, tuning: TuneOptions = ASKED, **changes: object) -> TuningResult:
    """A search in a folder."""
    options = EvalOptions(**{"out": str(folder), "dataset_limit": 40} | changes)  # pyright: ignore[reportArgumentType]
    return tune(pool, options, tuning, read_documents(options))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, TuningResult, ScriptedPool]:
    """A search that nothing broke off."""
    folder, pool = tmp_path_factory.mktemp("whole"), ScriptedPool(trade)
    return folder, searched(folder, pool), pool


def test_a_search_takes_a_part_of_the_grid(whole: tuple[Path, TuningResult, ScriptedPool]) -> None:
    folder, tuned, pool = whole
    assert len(pool.requested) == len({*pool.requested}), "an answer is asked for once"
    assert {options for options, _ in pool.requested} == {point.options for point in tuned.tried}
    lines = [json.loads(line) for line in (folder / ANSWERS).read_text().splitlines()]
    early = [line for line in lines if line["document"] < 24]
    assert tuned.forwards == sum(line["forwards"] for line in early)
    assert {point.sums.count for point in tuned.tried} == {tuned.problems} == {24}
    assert tuned.share == len(early) / (17 * 3 * 24) == pytest.approx(0.2, abs=0.01) and len(tuned.tried) == 10
    grid = sum(trade(options, problem)[1] for options in tuned.space.spread(1000) for problem in range(24))
    assert tuned.forwards / grid == pytest.approx(0.2, abs=0.02) and tuned.space.size == 17 * 3
    assert set(tuned.line) <= set(tuned.tried) and tuned.line == tuple(frontier(tuned.tried))
    printed = as_json(tuned)
    assert json.loads(json.dumps(printed)) == printed and printed["chosen"] == dict(tuned.chosen.options)


def test_the_figures_are_those_of_the_problems_held_out(whole: tuple[Path, TuningResult, ScriptedPool]) -> None:
    _, tuned, _ = whole
    for point, held in zip(tuned.line, tuned.held, strict=True):
        assert point.options == held.options and held.sums.count == 16 and point.sums.count == tuned.problems
        answers = [trade(held.options, problem) for problem in range(24, 40)]
        assert held.accuracy == sum(right for right, _ in answers) / 16
        assert held.speed == 16 * TOKENS / sum(forwards for _, forwards in answers)
    assert tuned.chosen == knee(tuned.line) and tuned.chosen_held.options == tuned.chosen.options


@pytest.mark.parametrize("seed", range(2))
def test_broken_off_at_any_answers_it_goes_on_to_the_same(
    whole: tuple[Path, TuningResult, ScriptedPool], tmp_path: Path, seed: int
) -> None:
    _, tuned, pool = whole
    random = Random(seed)
    for _ in range(3):
        broken = ScriptedPool(trade, seed=random.randrange(100), after=random.randrange(len(pool.requested) // 5))
        with pytest.raises(BrokenOffError):
            searched(tmp_path, broken)
        if random.random() < 0.5:  # killed while it wrote a line
            path = tmp_path / ANSWERS
            path.write_bytes(path.read_bytes()[: -random.randrange(1, 40)])
    known = (tmp_path / ANSWERS).read_bytes().count(b"\n")
    last = ScriptedPool(trade, seed=seed)
    again = searched(tmp_path, last)
    assert again == tuned
    assert len(last.requested) == len(pool.requested) - known, "nothing that is known is asked for"
    nobody = ScriptedPool(trade)
    assert searched(tmp_path, nobody) == again and not nobody.requested


def test_killed_the_decoded_answers_are_the_same(tmp_path: Path) -> None:
    tuning = TuneOptions(over=("accept_threshold=0.3,0.6,0.9",), problems=12, held_out=8, share=1.0, resume=True)
    options = EvalOptions(dataset_limit=20, out=str(tmp_path / "whole"))
    unbroken = tune(Answering(engine()), options, tuning, read_documents(options))
    broken = replace(options, out=str(tmp_path / "broken"))
    size = (tmp_path / "whole" / ANSWERS).stat().st_size
    for _ in range(3):
        killed_with(lambda: tune(Answering(engine()), broken, tuning, read_documents(broken)), Path(broken.out), size // 5)
    assert 0 < (tmp_path / "broken" / ANSWERS).stat().st_size < size
    assert tune(Answering(engine()), broken, tuning, read_documents(broken)) == unbroken
    outputs = LLM("tiny-bd", **dict(unbroken.chosen.options)).generate(
        [each.prompt for each in problems(20)[12:]], SamplingParams(max_tokens=64), progress=False
    )
    right = [score(each, output.text).answer for each, output in zip(problems(20)[12:], outputs, strict=True)]
    held = unbroken.chosen_held
    assert held.accuracy == sum(right) / 8
    assert held.speed == sum(len(output.token_ids) for output in outputs) / sum(output.nfe for output in outputs)


@pytest.mark.parametrize(
    ("tuning", "changes", "message"),
    [
        (replace(ASKED, over=("accept_threshold=0.3:0.9",)), {}, "tune.over.accept_threshold"),
        (replace(ASKED, over=OVER[:1]), {}, "tune.over.add_block_threshold"),
        (replace(ASKED, share=0.5), {}, "tune.share 0.2, and now it is 0.5"),
        (ASKED, {"temperature": 0.5}, "eval.temperature 0.0, and now it is 0.5"),
        (ASKED, {"problem_seed": 1}, "problems.shells.digest"),
    ],
)
def test_another_search_does_not_go_on_there(
    whole: tuple[Path, TuningResult, ScriptedPool], tuning: TuneOptions, changes: dict[str, object], message: str
) -> None:
    folder = whole[0]
    before = (folder / ANSWERS).read_bytes()
    with pytest.raises(ValueError, match=f"holds a run with {message}.*give another folder"):
        searched(folder, ScriptedPool(trade), tuning, **changes)
    with pytest.raises(ValueError, match="add --resume to continue a search, or give another folder"):
        searched(folder, ScriptedPool(trade), replace(ASKED, resume=False))
    assert (folder / ANSWERS).read_bytes() == before


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"[1]\n", "line 1 is not a line of a run"),
        (b'{"task": "shells"}\n', "line 1 is not a line of a run, look at document"),
        (b"nonsense\n", "line 1 holds no JSON"),
    ],
)
def test_a_file_that_is_no_search_is_told(
    whole: tuple[Path, TuningResult, ScriptedPool], tmp_path: Path, line: bytes, message: str
) -> None:
    (tmp_path / RUN).write_bytes((whole[0] / RUN).read_bytes())
    (tmp_path / ANSWERS).write_bytes(line)
    with pytest.raises(ValueError, match=message):
        searched(tmp_path, ScriptedPool(trade))


def test_a_score_that_is_no_number_is_told(whole: tuple[Path, TuningResult, ScriptedPool], tmp_path: Path) -> None:
    (tmp_path / RUN).write_bytes((whole[0] / RUN).read_bytes())
    first = json.loads((whole[0] / ANSWERS).read_bytes().splitlines()[0])
    (tmp_path / ANSWERS).write_text(json.dumps(first | {"score": float("nan")}) + "\n")
    with pytest.raises(ValueError, match="line 1 does not have its checksum"):
        searched(tmp_path, ScriptedPool(trade))


def test_without_a_right_answer_nothing_is_chosen(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no answer of .* was right, so nothing can be chosen"):
        searched(tmp_path, ScriptedPool(lambda options, problem: (False, 5)))


def test_equal_figures_everywhere_have_one_point(tmp_path: Path) -> None:
    tuned = searched(tmp_path, ScriptedPool(lambda options, problem: (True, 5)))
    assert len(tuned.line) == 1 and tuned.chosen == tuned.line[0] and tuned.chosen_held.accuracy == 1.0


def test_sets_that_no_request_can_bring_together_count_as_wrong(tmp_path: Path) -> None:
    """With order=entropy, accept_threshold has no effect and is refused: each value is fine with some of the others."""
    over = ("order=confidence,entropy", "accept_threshold=0.5,0.9")
    tuning = TuneOptions(over=over, problems=6, held_out=6, share=1.0, resume=True)
    pool = Answering(LLM("tiny-bd", entropy_threshold=0.5, order="entropy").engine)
    tuned = searched(tmp_path, pool, tuning, dataset_limit=12)
    failed = [point for point in tuned.tried if point.sums.failed]
    assert [dict(point.options) for point in failed] == [
        {"accept_threshold": 0.5, "order": "entropy"},
    ] and tuned.chosen not in failed


@pytest.mark.parametrize("at_least", [0.5, 0.9, 0.97, 1.0])
def test_the_fastest_with_a_share_of_the_best_accuracy_is_chosen(
    whole: tuple[Path, TuningResult, ScriptedPool], at_least: float
) -> None:
    line = whole[1].line
    chosen, best = chosen_of(line, at_least), max(point.accuracy for point in line)
    good = [point for point in line if point.accuracy >= at_least * best]
    assert chosen in good and chosen.speed == max(point.speed for point in good)


def test_the_first_problems_have_some_of_each_task_and_none_is_in_both_parts() -> None:
    options = EvalOptions(dataset_limit=11)
    documents = read_documents(options)["shells"]
    found = problems_of({"shells": documents, "gsm8k": documents[:3]})
    assert [task for task, _ in found[:7]] == ["shells", "gsm8k"] * 3 + ["shells"] and len(found) == 14
    for tuning in (TuneOptions(), TuneOptions(problems=3), TuneOptions(held_out=5), TuneOptions(problems=13, held_out=1)):
        early, late = parted(found, tuning)
        assert len(early) == (tuning.problems or len(early)) and len(late) == (tuning.held_out or len(late))
        assert early and late and [*early, *late] == found[: len(early) + len(late)]
    for tuning in (TuneOptions(problems=14), TuneOptions(held_out=14), TuneOptions(problems=8, held_out=7)):
        with pytest.raises(ValueError, match="are more than the 14 problems of the tasks: give fewer"):
            parted(found, tuning)
    with pytest.raises(ValueError, match="the tasks have 1 problem"):
        parted(found[:1], TuneOptions())
