"""`dlstep laws` ends whatever a user's file does, and says what is wrong and where."""

import json
import re
import signal
from pathlib import Path

import pytest

from dlstep.cli import main

from .faulty_files import FATAL, FATAL_TIMEOUT, Faulty, rule

Captured = pytest.CaptureFixture[str]


def check_fatal(faulty: Faulty, folder: Path, capsys: Captured) -> None:
    path = folder / "fatal.py"
    path.write_text(faulty.source, encoding="utf-8")
    seconds = ["--case_timeout", str(FATAL_TIMEOUT), "--law_timeout", "2"]
    assert main(["laws", str(path), "--only", "progress", *seconds, "--json"]) == faulty.code
    captured = capsys.readouterr()
    text = json.loads(captured.out)[0]["failure"] if faulty.code == 1 else captured.err
    for part in faulty.message:
        assert part in text, (part, text)
    if faulty.place:
        assert f'File "{path}", line {faulty.line}, in ' in text
    assert ("broken  progress" in captured.err) == (faulty.code == 1)


@pytest.mark.parametrize("kind", ["stays in C", "exits at once"])
def test_file_that_ends_its_process_is_reported(kind: str, tmp_path: Path, capsys: Captured) -> None:
    check_fatal(FATAL[kind], tmp_path, capsys)


@pytest.mark.stress
@pytest.mark.parametrize("kind", FATAL)
def test_every_file_that_ends_its_process_is_reported(kind: str, tmp_path: Path, capsys: Captured) -> None:
    check_fatal(FATAL[kind], tmp_path, capsys)


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (signal.SIGKILL, "the process was killed by SIGKILL (memory may have run out)"),
        pytest.param(signal.SIGSTOP, "the process did not answer within 60.5 seconds and was killed", marks=pytest.mark.stress),
    ],
    ids=["killed", "stopped"],
)
def test_file_that_ends_its_process_at_the_import_is_refused(
    number: signal.Signals, reason: str, tmp_path: Path, capsys: Captured
) -> None:
    path = tmp_path / "fatal.py"
    path.write_text(f"import os\nos.kill(os.getpid(), {int(number)})\n", encoding="utf-8")
    assert main(["laws", str(path), "--case_timeout", "0.5"]) == 2
    assert f"{path} cannot be loaded: {reason}" in capsys.readouterr().err


def test_law_after_a_case_that_never_returns_is_tried(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "endless_pins.py"
    path.write_text(rule("while sequence.request.params.pinned: pass"), encoding="utf-8")
    arguments = ["--only", "[pinned,order]", "--case_timeout", "1", "--examples", "5", "--json"]
    assert main(["laws", str(path), *arguments]) == 1
    rows = json.loads(capsys.readouterr().out)
    assert [row["law"] for row in rows] == ["order", "pinned"] * 2
    assert all(
        "was still running after 1 s, the time limit of a case" in row["failure"] for row in rows if row["law"] == "pinned"
    )


def test_law_ends_at_its_time_limit_and_says_how_many_cases_held(capsys: Captured) -> None:
    arguments = ["multi_bd", "--only", "budgets", "--examples", "100000", "--law_timeout", "2"]
    assert main(["laws", *arguments]) == 0
    text = capsys.readouterr().out
    found = re.findall(r"^  holds   budgets, in the (\d+) of 100000 cases that 2 s allowed \(--law_timeout\)$", text, re.M)
    assert len(found) == 1 and 0 < int(found[0]) < 100000, text


def test_laws_hold_for_a_rule_of_ones_own(own: Path, capsys: Captured) -> None:
    assert main(["laws", str(own / "best_of_own.py"), "--only", "[transparency,progress]", "--examples", "10"]) == 0
    text = capsys.readouterr().out
    assert text.count("holds") == 4 and "on multi_bd" in text and "on dual_cache" in text


@pytest.mark.stress  # to make a failing case small takes some seconds
def test_a_law_that_is_broken_is_named_with_a_case(own: Path, capsys: Captured) -> None:
    assert main(["laws", str(own / "lawless.py"), "--only", "[progress]", "--examples", "10", "--json"]) == 1
    rows = json.loads(capsys.readouterr().out)
    broken = [row for row in rows if row["failure"]]
    assert [row["law"] for row in rows] == ["progress"] * 2 and "returned no index although must is true" in broken[0][
        "failure"
    ]
    assert "strategy=MultiBD(" in broken[0]["failure"], "the case is shown"
