"""The process that compares formulas: it is given up and replaced."""

import signal

import pytest

from dlstep.evaluate.documents import Document
from dlstep.evaluate.maths import Maths
from dlstep.evaluate.scoring import maths_mark
from dlstep.text import limited_worker


def test_a_comparison_that_does_not_end_is_given_up_and_the_next_one_is_made() -> None:
    maths = Maths(seconds=1.0)
    worker = maths.worker
    try:
        mark = maths_mark(Document(0, "", "12"), r"\boxed{10^{10^{10}}}", maths)
        assert mark.score == 0 and mark.note == "not compared: it takes more than 1 seconds"
        worker.seconds = 60.0
        assert maths_mark(Document(0, "", "12"), r"\boxed{\frac{24}{2}}", maths).score == 1
        assert worker._process is not None
        worker._process.send_signal(signal.SIGSTOP)
        worker.seconds = 1.0
        note = maths_mark(Document(0, "", "12"), r"\boxed{\frac{36}{3}}", maths).note
        assert note == "not compared: it takes more than 1 seconds"
        worker.seconds = 60.0
        assert maths_mark(Document(0, "", "12"), r"\boxed{\frac{36}{3}}", maths).score == 1
        worker._process.kill()
        worker._process.wait()
        assert maths_mark(Document(0, "", "12"), r"\boxed{\frac{36}{3}}", maths).score == 1
    finally:
        maths.close()


def test_answers_are_not_wrong_because_the_libraries_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limited_worker, "STARTS", 1)
    monkeypatch.setattr(limited_worker, "START_SECONDS", 0.01)
    maths = Maths()
    with pytest.raises(ValueError, match=r"did not start: .*: no answer"):
        maths.equal("math_verify", "1", "1")
