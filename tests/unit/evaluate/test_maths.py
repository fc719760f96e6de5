"""The process that compares formulas: it is given up and replaced."""

import os
import signal
from typing import Any

import pytest

from dlstep.evaluate import maths as maths_module
from dlstep.evaluate.documents import Document
from dlstep.evaluate.maths import Maths
from dlstep.evaluate.scoring import maths_mark
from dlstep.processes import Worker


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
