"""`dlstep report`: its table, its page, and files that are none or were changed."""

import re
import sys
from pathlib import Path

import pytest

from dlstep import Trace
from dlstep.cli import main
from dlstep.evaluate.checkpoint import read

from ...docs.blocks import ROOT
from ...helpers.sealing import with_answers

README = ROOT / "README.md"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run with wrong answers."""
    out = tmp_path_factory.mktemp("report") / "run"
    assert main(f"eval --dataset_limit 12 --accept_threshold 0.3 --out {out}".split()) == 0
    return out


def rows_of(run):
    """The answers with their scores."""
    return [dict(row) for row in read(run).rows.values()]


def test_wrong_answers_are_listed_and_the_first_can_be_stepped_into(run, printed):
    text = printed(f"report {run}")
    assert [line for line in text.splitlines() if len(line) > 80 and str(run) not in line] == []
    wrong = [row["document"] for row in rows_of(run) if not row["score"]]
    assert wrong and f"Wrong answers: {len(wrong)} of 12" in text
    listed = text.partition("Wrong answers")[2].partition("Step into")[0]
    assert re.findall(r"^  shells/(\d+): ", listed, re.MULTILINE) == [str(document) for document in wrong[:5]]
    (command,) = re.findall(r"^  dlstep (report .* --show \S+)$", text, re.MULTILINE)
    message = printed(command)
    row = rows_of(run)[wrong[0]]
    steps = re.findall(r"^ +(\d+) .", message, re.MULTILINE)
    assert steps == [str(step) for step in range(1, row["steps"] + 1)] and row["answer"].strip() in message
    path = run / "traces" / f"shells-{wrong[0]}.jsonl"
    assert list(Trace.load(path).state.finished[0].answer) == row["tokens"]
    printed(f"replay {path}")


def test_a_run_of_your_own_rule_is_stepped_into_and_viewed(tmp_path, monkeypatch, printed, failure):
    """In a new process no module of the run is imported; the options of the proposed command name it."""
    monkeypatch.chdir(tmp_path)
    code = re.findall(r"```python\n((?:(?!```).)*\(Choice\):.*?)\n\n\nstory", README.read_text(), re.DOTALL)
    Path("all right").mkdir()
    Path("all right/all_right.py").write_text(f"{code[0]}\n\nRULE = AllRight\n")
    printed("eval --rule 'all right/all_right.py' --dataset_limit 1 --out run")
    ((options, path),) = re.findall(r"`dlstep view ((\S+) .*) --open`", printed("report run --show shells/0"))
    for name, message in (("view", "1 run"), ("replay", "every plan is as recorded")):
        del sys.modules["all_right"]
        assert "--rule FILE" in failure(f"{name} {path}")
        assert message in printed(f"{name} {options}")


def test_a_terminal_gets_no_commands_of_a_model(run, tmp_path, printed):
    other = with_answers(run, tmp_path / "run", [{"answer": "a\x1b[31m\n", "found": "\x1b[2J", "score": 0.0}])
    assert "\x1b" not in printed(f"report {other}")


@pytest.mark.parametrize(
    "name, change, message",
    [
        ("scores.jsonl", lambda text: text.replace('"score": ', '"score": "x", "old": ', 1), "does not have its checksum"),
        ("answers.jsonl", lambda text: "5\n" + text, "line 1 is not a line of a run: 5"),
        (
            "beside.jsonl",
            lambda text: text.replace('"share": ', '"share": "x", "old": ', 1),
            "line 1 does not have its checksum",
        ),
        ("run.json", lambda text: "[]", "was not written by `dlstep eval`"),
        ("run.json", lambda text: "{", "holds no JSON"),
    ],
)
def test_a_file_that_was_changed_is_told_of(run, tmp_path, name, change, message, failure):
    for path in run.glob("*.json*"):
        (tmp_path / path.name).write_text(change(path.read_text()) if path.name == name else path.read_text())
    assert message in failure(f"report {tmp_path}")
