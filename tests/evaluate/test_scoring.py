"""Answers score as the tables of docs/evaluation.md say, and none of them can hang a scorer."""

import os
import signal
from typing import Any

import pytest
from given import cases

from dlstep.evaluate import maths as maths_module
from dlstep.evaluate.documents import Document
from dlstep.evaluate.jail import Jail
from dlstep.evaluate.maths import Maths
from dlstep.evaluate.options import CODE_TASKS
from dlstep.evaluate.scoring import code_mark, digits_mark, ending_mark, last_box, maths_mark, number_mark
from dlstep.processes import Worker

CASES = cases()
CODE = 'FACTOR = 2\n\n\ndef double(n):\n    """Twice a number."""\n'
DOUBLE = Document(0, CODE, "", ("assert double(3) == 6", "assert double(4) == 8"), CODE, "double")


def test_the_page_has_enough_cases() -> None:
    assert len(CASES) == len(set(CASES)) > 60
    assert {task for task, _, _, _ in CASES} == {"shells", "gsm8k", "math500", "humaneval", "mbpp", "questions"}


@pytest.mark.parametrize(("task", "answer", "expected", "score"), [case for case in CASES if case[0] not in CODE_TASKS])
def test_an_answer_scores_as_the_page_says(task: str, answer: str, expected: str, score: float, maths: Maths) -> None:
    document = Document(0, "", expected)
    if task == "math500":
        mark = maths_mark(document, answer, maths)
    else:
        mark = {"shells": digits_mark, "gsm8k": number_mark, "questions": ending_mark}[task](document, answer)
    assert mark.score == score, mark


@pytest.mark.parametrize(("task", "answer", "score"), [(case[0], case[1], case[3]) for case in CASES if case[0] in CODE_TASKS])
def test_a_program_scores_as_the_page_says(task: str, answer: str, score: float, jail: Jail) -> None:
    mark = code_mark(task, DOUBLE, answer, jail)
    assert mark.score == score, mark


def test_without_a_jail_no_program_is_run() -> None:
    mark = code_mark("mbpp", DOUBLE, "raise SystemExit", None)
    assert (mark.score, mark.note) == (0.0, "not run")


def test_a_comparison_that_does_not_end_is_given_up_and_the_next_one_is_made() -> None:
    maths = Maths(seconds=1.0)
    try:
        hostile = Document(0, "", "12")
        mark = maths_mark(hostile, r"\boxed{10^{10^{10}}}", maths)
        assert mark.score == 0 and mark.note == "not compared: math-verify did not answer within 1 seconds and was killed"
        maths.seconds = 60.0
        assert maths_mark(hostile, r"\boxed{\frac{24}{2}}", maths).score == 1
        assert maths._worker is not None
        for fault, reason in ((signal.SIGSTOP, "did not answer within 1 seconds"), (signal.SIGKILL, "was killed by SIGKILL")):
            os.kill(maths._worker.pid, fault)
            maths.seconds = 1.0
            assert f"not compared: math-verify {reason}" in maths_mark(hostile, r"\boxed{\frac{36}{3}}", maths).note
            maths.seconds = 60.0
            assert maths_mark(hostile, r"\boxed{\frac{36}{3}}", maths).score == 1
    finally:
        maths.close()


@pytest.mark.parametrize("fault", [signal.SIGSTOP, signal.SIGKILL], ids=["stopped", "killed"])
def test_a_comparison_process_that_stops_at_its_start_is_replaced(
    fault: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Worker] = []

    class Struck(Worker):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            started.append(self)
            monkeypatch.setattr(maths_module, "START", 2.0 if len(started) == 1 else 120.0)
            if len(started) == 1:
                os.kill(self.pid, fault)

    monkeypatch.setattr(maths_module, "Worker", Struck)
    maths = Maths(seconds=60.0)
    try:
        assert maths_mark(Document(0, "", "12"), r"\boxed{\frac{24}{2}}", maths).score == 1
    finally:
        maths.close()
    assert len(started) == 2
    assert ("did not answer within 2 seconds" if fault == signal.SIGSTOP else "SIGKILL") in started[0].reason


@pytest.mark.parametrize("text", ["{" * 3000, r"\boxed{" * 3000, "-" * 3000, "1," * 3000, "9" * 10_000, "\\frac{1}{" * 999])
def test_hostile_texts_are_numbers_or_none(text: str) -> None:
    assert number_mark(Document(0, "", "36"), text).score == 0
    last_box(text)
