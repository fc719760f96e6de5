"""`dlstep eval` from options to table; wrong ones give one line before anything is loaded."""

import json
import re

import pytest

from dlstep import LLM
from dlstep.cli.eval import report_failures
from dlstep.tiny import problems


def test_the_figures_are_those_of_generate(tmp_path, printed):
    out = tmp_path / "run"
    line = f"eval --dataset-limit 30 --accept_threshold 0.3 --out {out}"
    text = printed(line)
    assert max(len(line) for line in text.splitlines() if str(tmp_path) not in line) <= 80
    assert "\N{HORIZONTAL ELLIPSIS}" not in text
    (figures,) = json.loads((out / "table.json").read_text())
    outputs = LLM("tiny-bd", accept_threshold=0.3).generate([each.prompt for each in problems(30)])
    assert figures["forwards_per_answer"] == sum(each.nfe for each in outputs) / 30 and 0 < figures["accuracy"] < 1
    assert json.loads(printed(f"{line} --json")) == [figures], "a complete run is only printed again"


def test_a_grid_has_a_line_for_each_set_of_options_and_a_reference_run(tmp_path, printed):
    one, grid = tmp_path / "one", tmp_path / "grid"
    printed(f"eval --dataset_limit 20 --out {one}")
    (tmp_path / "grid.yaml").write_text("eval:\n  dataset-limit: 20\n  grid: {accept_threshold: [0.3, 0.9]}\n")
    text = printed(f"eval --config {tmp_path}/grid.yaml --out {grid}")
    assert max(len(line) for line in text.splitlines() if str(tmp_path) not in line) <= 80
    assert ' 2  {"accept_threshold": 0.9}' in text
    fast, same = json.loads(printed(f"report {grid} --against {one} --json"))
    assert (same["equal"], same["accuracy_gain"]["value"], same["accuracy_gain"]["p"]) == (1.0, 0.0, 1.0)
    assert isinstance(fast["equal"], float) and fast["equal"] < 1
    assert fast["speed_gain"]["low"] > 1


@pytest.mark.parametrize(
    "options, message",
    [
        ("--tasks [shells,shells]", "none twice"),
        pytest.param(
            "--tasks nonsense --data /nonsense",
            "task nonsense reads no files of --data: choose from gsm8k",
            marks=pytest.mark.full,
        ),
        ("--data /nonsense", "--data '/nonsense' is for tasks of lm_eval, but tasks are ('shells',): omit it"),
        ("--dataset_limit 0", "error: --dataset_limit: "),
        ("--shots 4", "--shots 4 is for tasks of lm_eval, but tasks are ('shells',): omit it"),
        ("--grid '{accept_threshold: []}'", "must list at least one set of options"),
        ("--config 'eval: 5'", "`eval:` holds no names and values, got 5"),
        ("--config 'engine: {rule: ./mine.py}'", "rule='./mine.py' is a path, which imports a module"),
        ("--config 'processors: [min_tokens, {./mine.py: {}}]'", "processors='./mine.py' is a path, which imports a module"),
    ],
)
def test_a_wrong_option_is_one_line(options, message, tmp_path, failure):
    assert message in failure(f"eval {options} --out {tmp_path}/out")
    assert not (tmp_path / "out" / "answers.jsonl").exists()


def test_failed_answers_are_counted_on_stderr(capsys):
    assert [report_failures(0), report_failures(2, "it\x1bfailed")] == [0, 1]
    assert re.fullmatch(r"dlstep: 2 answers .*it[^\x1b]failed\n", capsys.readouterr().err)
