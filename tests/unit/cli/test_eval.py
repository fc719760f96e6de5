"""`dlstep eval` from options to table; wrong ones give one line before anything is loaded."""

import json

import pytest

from dlstep import LLM, SamplingParams
from dlstep.cli import main
from dlstep.tiny import problems
from training.stories import score


def table(folder):
    """The table that the command wrote."""
    return json.loads((folder / "table.json").read_text())


def test_the_figures_are_those_of_generate(tmp_path, capsys):
    out = tmp_path / "run"
    arguments = ["eval", "--dataset-limit", "30", "--accept_threshold", "0.3", "--out", str(out)]
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert max(len(line) for line in text.splitlines() if str(tmp_path) not in line) <= 80
    assert "\N{HORIZONTAL ELLIPSIS}" not in text
    (line,) = table(out)
    stories = problems(30)
    llm = LLM("tiny-bd", accept_threshold=0.3)
    outputs = llm.generate([each.prompt for each in stories], SamplingParams(max_tokens=64))
    right = [score(problem, output.text).answer for problem, output in zip(stories, outputs, strict=True)]
    tokens, forwards = sum(len(each.token_ids) for each in outputs), sum(each.nfe for each in outputs)
    assert 0 < sum(right) < 30
    assert line["accuracy"] == sum(right) / 30 and line["tokens"] == tokens
    assert line["tokens_per_forward"] == tokens / forwards and line["forwards_per_answer"] == forwards / 30
    assert main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [line], "a complete run is only printed again"


def test_a_grid_has_a_line_for_each_set_of_options_and_a_reference_run(tmp_path, capsys):
    one, grid = tmp_path / "one", tmp_path / "grid"
    assert main(["eval", "--dataset_limit", "20", "--out", str(one)]) == 0
    (tmp_path / "grid.yaml").write_text("eval:\n  dataset-limit: 20\n  grid: {accept_threshold: [0.3, 0.9]}\n")
    assert main(["eval", "--config", str(tmp_path / "grid.yaml"), "--out", str(grid)]) == 0
    text = capsys.readouterr().out
    assert max(len(line) for line in text.splitlines() if str(tmp_path) not in line) <= 80
    assert ' 2  {"accept_threshold": 0.9}' in text
    assert main(["report", str(grid), "--against", str(one), "--json"]) == 0
    fast, same = json.loads(capsys.readouterr().out)
    assert (same["equal"], same["accuracy_gain"]["value"], same["accuracy_gain"]["p"]) == (1.0, 0.0, 1.0)
    assert isinstance(fast["equal"], float) and fast["equal"] < 1
    assert fast["speed_gain"]["low"] > 1


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--tasks", "[shells,shells]"], "none twice"),
        (["--tasks", "nonsense", "--data", "/nonsense"], "task nonsense reads no files of --data: choose from gsm8k"),
        (["--data", "/nonsense"], "--data '/nonsense' is for tasks of lm_eval, but tasks are ('shells',): omit it"),
        (["--dataset_limit", "0"], "error: --dataset_limit: "),
        (["--shots", "4"], "--shots 4 is for tasks of lm_eval, but tasks are ('shells',): omit it"),
        (["--grid", '{"accept_threshold": []}'], "must list at least one set of options"),
        (["--config", "eval: 5"], "`eval:` holds no names and values, got 5"),
        (["--config", "engine: {rule: ./mine.py}"], "rule='./mine.py' is a path, which imports a module"),
        (["--config", "processors: [min_tokens, {./mine.py: {}}]"], "processors='./mine.py' is a path, which imports a module"),
    ],
)
def test_a_wrong_option_is_one_line(arguments, message, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["eval", *arguments, *(["--out", str(out)] if "--out" not in arguments else [])]) == 2
    printed = capsys.readouterr().err
    assert message in printed and printed.count("\n") == 1 and not (out / "answers.jsonl").exists()
