"""The process that compares formulas: it is given up and replaced."""

import signal

import pytest

from dlstep.evaluate.documents import Document
from dlstep.evaluate.maths import WORKER
from dlstep.evaluate.scoring import maths_mark
from dlstep.text import limited_worker


def test_a_comparison_that_does_not_end_is_given_up_and_the_next_one_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    twelve = Document(0, "", "12")
    with monkeypatch.context() as hurried:
        hurried.setattr(WORKER, "seconds", 1.0)
        mark = maths_mark(twelve, r"\boxed{10^{10^{10}}}")
        assert mark.score == 0 and mark.note == "not compared: it takes more than 1 seconds"
    assert maths_mark(twelve, r"\boxed{\frac{24}{2}}").score == 1
    assert WORKER._process is not None
    WORKER._process.send_signal(signal.SIGSTOP)
    with monkeypatch.context() as hurried:
        hurried.setattr(WORKER, "seconds", 1.0)
        assert maths_mark(twelve, r"\boxed{\frac{36}{3}}").note == "not compared: it takes more than 1 seconds"
    assert maths_mark(twelve, r"\boxed{\frac{36}{3}}").score == 1
    WORKER._process.kill()
    WORKER._process.wait()
    assert maths_mark(twelve, r"\boxed{\frac{36}{3}}").score == 1


def test_answers_are_not_wrong_because_the_libraries_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    WORKER.close()
    monkeypatch.setattr(limited_worker, "STARTS", 1)
    monkeypatch.setattr(limited_worker, "START_SECONDS", 0.01)
    with pytest.raises(ValueError, match=r"did not start: .*: no answer"):
        maths_mark(Document(0, "", "12"), r"\boxed{12}")
