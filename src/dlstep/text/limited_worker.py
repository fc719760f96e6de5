"""A process that does untrusted work: it ends if a job exceeds its limits of time or memory.

It is not a `processes.Worker`, because those import the main module and so need a `__main__` guard.
"""

import atexit
import json
import os
import pickle
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from threading import Lock, Timer
from time import monotonic
from typing import Any
from weakref import WeakSet

START_SECONDS = 60.0  # for the process to start on a busy machine
JOB_SECONDS = 10.0
GRACE_SECONDS = 2.0  # after which a process that did not end itself is killed, because it was stopped
WORKER = Path(__file__).with_name("_limited_worker.py")


class LimitedWorker:
    """A process that does jobs of `_limited_worker.py`, started when needed. Thread-safe: one job at a time."""

    def __init__(self) -> None:
        self.forget()
        _workers.add(self)

    def forget(self) -> None:
        """Forget the process, which belongs to another process after a fork."""
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, kind: str, *arguments: Any) -> dict[str, Any]:
        """Return the result of a job with these plain arguments. Raises ValueError with the reason if it fails."""
        job = pickle.dumps((JOB_SECONDS, kind, arguments))
        with self._lock:
            if self._process is not None and self._process.poll() is not None:
                self._end()
            try:
                if self._process is None:
                    self._process = _process()
                    if _answer(self._process, pickle.dumps((START_SECONDS, "nothing", ())), START_SECONDS) is None:
                        raise ValueError(f"a process for untrusted work did not start: {sys.executable} {WORKER}")
                begun = monotonic()
                answer = _answer(self._process, job, JOB_SECONDS)
            except BaseException:  # even KeyboardInterrupt: the next call must not read this answer
                self._end()
                raise
            if answer is None:
                self._end()
        if answer is None:
            late = monotonic() - begun >= JOB_SECONDS
            raise ValueError(f"it takes more than {JOB_SECONDS:g} seconds" if late else "it takes too much memory")
        if "error" in answer:
            raise ValueError(answer["error"])
        return answer

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with suppress(OSError), process:  # waits for it and closes the pipes
                pass


def _process() -> subprocess.Popen[bytes]:
    """Start a new process."""
    return subprocess.Popen(
        [sys.executable, "-P", str(WORKER)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        start_new_session=True,  # so that Ctrl-C does not end it
    )


def _answer(process: subprocess.Popen[bytes], job: bytes, seconds: float) -> dict[str, Any] | None:
    """Send a job and return its answer; None if the process ended without one or was killed after `seconds`."""
    assert process.stdin is not None and process.stdout is not None, "both are pipes"
    # The process limits its own time, so that it also ends without a parent. A stopped process cannot: the parent kills it.
    deadline = Timer(seconds + GRACE_SECONDS, process.kill)
    deadline.daemon = True
    deadline.start()
    try:
        process.stdin.write(job)
        process.stdin.flush()
        line = process.stdout.readline()
    except OSError:
        return None
    finally:
        deadline.cancel()
        deadline.join()
    return json.loads(line) if line.endswith(b"\n") else None


_workers: "WeakSet[LimitedWorker]" = WeakSet()


@atexit.register
def _close_all() -> None:
    for worker in _workers:
        worker.close()


def _forget_all() -> None:
    for worker in _workers:
        worker.forget()


if hasattr(os, "register_at_fork"):  # a forked process must not use the pipes of its parent
    os.register_at_fork(after_in_child=_forget_all)
