"""Comparison of mathematical answers by math-verify, in a process of its own: an answer can hang it, or fill its memory."""

from importlib.util import find_spec
from threading import Lock
from typing import Any

from ..processes import Worker, WorkerDied
from ._maths_worker import answer_jobs

START = 120.0  # seconds that the libraries may take to load, on a busy machine
STARTS = 2  # attempts to start the process
LONGEST = 10_000  # characters of an answer that is looked at


class Maths:
    """A process that compares answers, started when it is first asked, and again after an answer that it did not survive.

    Threads may share it. Raises ValueError where math-verify is not installed.
    """

    def __init__(self, seconds: float = 10.0) -> None:
        if find_spec("math_verify") is None:
            raise ValueError("task math500 compares answers by math-verify: pip install 'dlstep[eval]'")
        self.seconds = seconds
        self._lock = Lock()
        self._worker: Worker | None = None

    def equal(self, gold: str, found: str, *, boxed: bool) -> tuple[bool, str, str]:
        """Whether two answers are equal, what was read in the found one, and why they were not compared, if so.

        `boxed` says that `found` is a formula, not a text with a formula or a number in it.
        """
        job = {"gold": gold, "found": found[-LONGEST:], "boxed": boxed}
        with self._lock:
            worker = self._worker = self._worker or _started()
            try:
                answer = _asked(worker, job, self.seconds)
            except WorkerDied as error:
                self._end()
                return False, "", f"not compared: {error}"
        return answer["equal"], answer["read"], ""

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._end()

    def _end(self) -> None:
        if self._worker is not None:
            self._worker.end(0)
            self._worker = None


def _started() -> Worker:
    """Return a new worker that has loaded its libraries. Raises ValueError if that fails `STARTS` times."""
    reasons: list[str] = []
    while len(reasons) < STARTS:
        worker = Worker(answer_jobs, name="math-verify")
        try:
            _asked(worker, {"gold": "1", "found": "1", "boxed": True}, START)
        except WorkerDied as error:
            worker.end(0)
            reasons.append(str(error))
        else:
            return worker
    raise ValueError(f"math-verify does not start: {'; '.join(reasons)}")


def _asked(worker: Worker, job: dict[str, object], seconds: float) -> dict[str, Any]:
    """Return the answer to a job. Raises WorkerDied if it does not arrive within `seconds`."""
    worker.send(job, seconds)
    return worker.receive(seconds)
