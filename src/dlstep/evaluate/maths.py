"""Comparison of mathematical answers by math-verify, in a process of its own: an answer can hang it, or fill its memory."""

import json
import select
import subprocess
import sys
from importlib.util import find_spec
from threading import Lock

START = 120.0  # seconds that the libraries may take to load, on a busy machine
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
        self._process: subprocess.Popen[bytes] | None = None

    def equal(self, gold: str, found: str, *, boxed: bool) -> tuple[bool, str, str]:
        """Whether two answers are equal, what was read in the found one, and why they were not compared, if so.

        `boxed` says that `found` is a formula, not a text with a formula or a number in it.
        """
        job = {"gold": gold, "found": found[-LONGEST:], "boxed": boxed}
        with self._lock:
            if self._process is None:
                self._process = self._started()
            told = self._asked(self._process, job, self.seconds)
            if told is None:
                self._end()
                return False, "", "no comparison within its limits of time and memory"
        answer = json.loads(told)
        return answer["equal"], answer["read"], ""

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._end()

    def _started(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-P", "-m", f"{__package__}._maths_worker"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0)
        if self._asked(process, {"gold": "1", "found": "1", "boxed": True}, START) is None:
            process.kill()
            raise ValueError("math-verify does not start: see what `python -c 'import math_verify'` says")
        return process

    def _asked(self, process: subprocess.Popen[bytes], job: dict[str, object], seconds: float) -> bytes | None:
        """A line of the process; None if it gives none in time."""
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(job).encode() + b"\n")
        except BrokenPipeError:
            return None
        ready = select.select([process.stdout], [], [], seconds)[0]
        return (process.stdout.readline() or None) if ready else None

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                assert pipe is not None
                pipe.close()
            self._process = None
