"""Comparison of mathematical answers in a separate process, because an answer can hang the libraries or exhaust memory."""

from importlib.metadata import PackageNotFoundError, version
from threading import Lock
from typing import Any

from ..processes import Worker, WorkerDied
from ._maths_worker import answer_jobs

START = 120.0  # seconds that the libraries may take to load, on a busy machine
STARTS = 2  # attempts to start the process
LONGEST = 10_000  # characters at the end of an answer that are read


class Maths:
    """A process that compares answers. It starts with the first comparison, and again after a comparison that ended it.

    Threads may share it. Raises ValueError if the libraries of lm_eval's rules are not installed.
    """

    def __init__(self, seconds: float = 10.0) -> None:
        try:
            known = version("math-verify") and version("antlr4-python3-runtime").startswith("4.11")
        except PackageNotFoundError:
            known = False
        if not known:
            raise ValueError("task math500 needs math-verify and antlr4-python3-runtime 4.11: pip install 'dlstep[eval]'")
        self.seconds = seconds
        self._lock = Lock()
        self._worker: Worker | None = None

    def equal(self, rule: str, gold: str, text: str) -> tuple[bool, str, str]:
        """Return whether a text contains the expected answer, what was extracted, and a note if nothing could be compared.

        `rule` is a metric of lm_eval's minerva_math500: `math_verify` or `exact_match`.
        """
        job: dict[str, object] = {"rule": rule, "gold": gold, "text": text[-LONGEST:]}
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
            for rule in ("math_verify", "exact_match"):
                _asked(worker, {"rule": rule, "gold": "1", "text": "Final Answer: The final answer is 2. "}, START)
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
