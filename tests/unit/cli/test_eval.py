"""`dlstep eval` from options to table; wrong ones give one line before anything is loaded."""

import csv
import json
import re
import shutil
from io import StringIO
from pathlib import Path

import pytest

from dlstep import LLM, SamplingParams, tiny
from dlstep.cli import main
from dlstep.evaluate import EvalOptions
from dlstep.evaluate.items import read_problems
from dlstep.tiny import problems, score

from ...helpers.given import DATA, needs_data

Captured = pytest.CaptureFixture[str]


def table(folder: Path) -> list[dict[str, object]]:
    """The table that the command wrote."""
    return json.loads((folder / "table.json").read_text())


def test_the_figures_are_those_of_generate(tmp_path: Path, capsys: Captured) -> None:
    out = tmp_path / "run"
    arguments = ["eval", "--dataset-limit", "30", "--accept_threshold", "0.3", "--out", str(out)]
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert max(len(line) for line in text.splitlines() if str(tmp_path) not in line) <= 80
    assert "\N{HORIZONTAL ELLIPSIS}" not in text
    (line,) = table(out)
    stories = problems(30)
    llm = LLM("tiny-bd", accept_threshold=0.3)
    outputs = llm.generate([each.prompt for each in stories], SamplingParams(max_tokens=64), progress=False)
    right = [score(problem, output.text).answer for problem, output in zip(stories, outputs, strict=True)]
    tokens, forwards = sum(len(each.token_ids) for each in outputs), sum(each.nfe for each in outputs)
    assert 0 < sum(right) < 30
    assert line["accuracy"] == sum(right) / 30 and line["tokens"] == line["decided"] == tokens
    assert line["tokens_per_forward"] == tokens / forwards and line["forwards_per_answer"] == forwards / 30
    assert line["tokens_per_step"] == tokens / sum(each.steps for each in outputs)
    assert (
        isinstance(line["tps_e2e"], float) and isinstance(line["tps_decode"], float) and line["tps_e2e"] <= line["tps_decode"]
    )
    (row,) = csv.DictReader(StringIO((out / "table.csv").read_text()))
    assert list(row) == list(line) and float(row["tps_e2e"]) == line["tps_e2e"]
    assert main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [line], "a complete run is only printed again"


def test_a_grid_has_a_line_for_each_set_of_options_and_a_reference_run(tmp_path: Path, capsys: Captured) -> None:
    one, grid = tmp_path / "one", tmp_path / "grid"
    assert main(["eval", "--dataset_limit", "20", "--out", str(one)]) == 0
    (tmp_path / "grid.yaml").write_text("eval:\n  dataset-limit: 20\n  grid: {accept_threshold: [0.3, 0.9]}\n")
    assert main(["eval", "--config", str(tmp_path / "grid.yaml"), "--out", str(grid), "--against", str(one)]) == 0
    text = capsys.readouterr().out
    assert max(len(line) for line in text.splitlines() if str(tmp_path) not in line) <= 80
    assert '# 2: {"accept_threshold": 0.9}' in text
    fast, same = table(grid)
    assert (same["equal"], same["accuracy_gain"], same["accuracy_gain_p"]) == (1.0, 0.0, 1.0)
    assert isinstance(fast["equal"], float) and fast["equal"] < 1
    assert isinstance(fast["speed_gain_low"], float) and fast["speed_gain_low"] > 1
    assert fast["tps_e2e"] is fast["batch"] is None, "the forwards are those of both"


def test_a_run_that_cannot_be_compared_is_shown_before_the_reason(tmp_path: Path, capsys: Captured) -> None:
    grid, other = tmp_path / "grid", tmp_path / "other"
    arguments = ["eval", "--dataset_limit", "2", "--max_tokens", "4"]
    assert main([*arguments, "--grid", '{"accept_threshold": [0.3, 0.9]}', "--out", str(grid)]) == 0
    capsys.readouterr()
    assert main([*arguments, "--accept_threshold", "0.5", "--out", str(other), "--against", str(grid)]) == 2
    printed = capsys.readouterr()
    assert "right, %" in printed.out and len(table(other)) == 1
    assert "no task with the same set of options in both" in printed.err and "Traceback" not in printed.err


@pytest.fixture(scope="module")
def long_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An embedded model that takes longer prompts than it was made for; with so long ones it writes nonsense."""
    folder = tmp_path_factory.mktemp("models") / "long"
    shutil.copytree(tiny.path("tiny-bd"), folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 4096}))
    return folder


@needs_data
def test_each_task_is_asked_scored_and_resumed(long_model: Path, tmp_path: Path, capsys: Captured) -> None:
    """An embedded model knows nothing of these; formats and files are what is looked at."""
    tasks = "[gsm8k,math500,humaneval,mbpp]"
    arguments = ["eval", "--tasks", tasks, "--data", str(DATA), "--max_tokens", "8", "--shots", "1", "--prompts", "dlstep"]
    arguments += ["--model", str(long_model)]
    out = tmp_path / "run"
    assert main([*arguments, "--dataset_limit", "2", "--out", str(out)]) == 0
    assert "no program of mbpp was run" in capsys.readouterr().err
    rows = [json.loads(line) for line in (out / "answers.jsonl").read_text().splitlines()]
    assert [(row["task"], row["document"]) for row in rows] == [
        (task, number) for task in ("gsm8k", "math500", "humaneval", "mbpp") for number in range(2)
    ]
    assert [row["note"] for row in rows[4:]] == ["not run"] * 4
    assert rows[0]["prompt"].count("Question: ") == 2 and rows[0]["prompt"].endswith("\nAnswer:")
    assert rows[2]["prompt"].count("Problem: ") == 2
    assert "def has_close_elements" in rows[4]["prompt"] and rows[6]["prompt"].count("# assert") == 2
    whole = (out / "answers.jsonl").read_bytes()
    (out / "answers.jsonl").write_bytes(whole[: len(whole) // 2])
    assert main([*arguments, "--dataset_limit", "2", "--out", str(out)]) == 0
    assert (out / "answers.jsonl").read_bytes() == whole


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tasks", "nonsense"], "--tasks: 'nonsense' is unknown, choose from shells, gsm8k"),
        (["--tasks", "[shells,shells]"], "none twice"),
        (["--tasks", "gsm8k"], "task gsm8k reads GSM8K.json: give --data, the folder with it"),
        (["--tasks", "gsm8k", "--data", "/nonsense"], "--data '/nonsense' has no such file"),
        (["--dataset_limit", "0"], "--dataset_limit must be at least 1, got 0"),
        (["--shots", "4"], "--shots must be at most 3 for task shells with --prompts lm_eval, got 4"),
        (["--tasks", "[gsm8k,humaneval]", "--shots", "1"], "--shots must be at most 0 for task humaneval"),
        (["--prompts", "mine"], "--prompts takes one of 'lm_eval', 'dlstep', got 'mine'"),
        (["--grid", "5"], "--grid takes options with lists of values"),
        (["--grid", '{"accept_threshold": []}'], "--grid must have from 1 to 1000 combinations"),
        (["--grid", '{"nonsense": [1]}'], "MultiBD has no option 'nonsense'"),
        (["--temperature", "-1"], "--temperature must be at least 0.0"),
        (["--against", "/nonsense"], "no run in '/nonsense': it has no run.json"),
        (["--nonsense", "1"], "unrecognized arguments: --nonsense"),
        (["--dataset_limits", "1"], "did you mean --dataset_limit?"),
        (["--config", "eval: 5"], "`eval:` holds no names and values, got 5"),
        (["--config", "engine: {rule: ./mine.py}"], "rule='./mine.py' is a path, which imports a module"),
    ],
)
def test_a_wrong_option_is_one_line(arguments: list[str], message: str, tmp_path: Path, capsys: Captured) -> None:
    out = tmp_path / "out"
    assert main(["eval", *arguments, *(["--out", str(out)] if "--out" not in arguments else [])]) == 2
    printed = capsys.readouterr().err
    assert (message in printed and printed.count("\n") == 1 and not (out / "answers.jsonl").exists()) or "chat" in message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "holds no JSON"),
        ("{}", "entry 1 is not a problem of"),
        ("[]", "must hold problems: a JSON list"),
        ('[{"question": "a"}]', "GSM8K.json, entry 1 is not a problem of gsm8k, look at 'ground_truth_answer'"),
        ('[{"question": "", "ground_truth_answer": "1"}]', "look at 'question'"),
    ],
)
def test_a_wrong_file_is_one_line(text: str, message: str, tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "GSM8K.json").write_text(text)
    assert main(["eval", "--tasks", "gsm8k", "--data", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must hold problems: a JSON list, or a JSON object on each line"),
        ("{", "holds no JSON"),
        ("[1]", "must hold problems"),
        ('{"prompt": "a", "answer": ""}', "mine.jsonl, entry 1 is not a problem of questions, look at 'answer'"),
        ('{"prompt": "a", "answer": "."}', "look at 'answer'"),
        ('{"prompt": "a", "answer": true}', "look at 'answer'"),
        (
            '{"prompt": "a", "answer": 1}\n{"prompt": " ", "answer": 1}',
            "entry 2 is not a problem of questions, look at 'prompt'",
        ),
    ],
)
def test_a_wrong_file_of_questions_is_one_line(text: str, message: str, tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(text)
    arguments = ["eval", "--tasks", "questions", "--questions", str(path), "--out", str(tmp_path / "out")]
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("listed", [True, False])
def test_questions_are_read_from_a_list_and_from_lines(listed: bool, tmp_path: Path) -> None:
    entries = [{"question": "How many?", "answer": "so 3 and 4 make\n#### 1,007"}, {"prompt": "Who?", "answer": " Ida "}]
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps(entries) if listed else "\n\n".join(map(json.dumps, entries)))
    (found,) = read_problems(EvalOptions(("questions",), questions=str(path))).values()
    assert [(each.question, each.gold) for each in found] == [("How many?", "1,007"), ("Who?", "Ida")]
    with pytest.raises(ValueError, match=r"EvalOptions\.shots must be at most 0 for task questions with .*, got 1"):
        EvalOptions(("questions",), questions=str(path), shots=1)


def test_a_rejected_answer_is_counted_and_told(tmp_path: Path, capsys: Captured) -> None:
    arguments = ["eval", "--dataset_limit", "8", "--max_model_len", "64", "--out", str(tmp_path / "run")]
    assert main([*arguments, "--shots", "1"]) == 1
    message = capsys.readouterr().err
    (line,) = table(tmp_path / "run")
    rows = [json.loads(each) for each in (tmp_path / "run" / "answers.jsonl").read_text().splitlines()]
    named = re.search(r"answers failed, the first is shells/(\d+): ", message)
    assert named and {row["finish"] for row in rows if row["document"] == int(named[1])} == {"rejected"}
    assert line["failed"] == sum(row["finish"] == "rejected" for row in rows) > 0
    assert all(row["score"] == 0 for row in rows if row["finish"] == "rejected")
