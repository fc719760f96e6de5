"""A process that does untrusted work: it ends if a job exceeds its limits of time or memory.

It is not a `processes.Worker`, because those import the main module and so need a `__main__` guard.
"""

import atexit
import os
import pickle
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from threading import Event, Lock, Timer
from time import monotonic
from typing import Any
from weakref import WeakSet

START_SECONDS = 60.0  # for the process to start on a busy machine
JOB_SECONDS = 10.0
MEMORY = 1 << 29  # bytes that jobs may use beyond those of a new process
GRACE_SECONDS = 2.0  # past the time limit; after that, a process that did not exit, such as a suspended one, is killed
WORKER = Path(__file__).with_name("_limited_worker.py")


class NotStartedError(ValueError):
    """Error if no process could be started, or the job was stopped; the job is not its cause."""


class LimitError(ValueError):
    """Error for a job that exceeds the limit of time or memory."""


class LimitedWorker:
    """A process that calls functions, started when needed. Thread-safe: one job at a time.

    Args:
        seconds: Time limit of a job.
    """

    def __init__(self, seconds: float = JOB_SECONDS) -> None:
        self.seconds = seconds
        self.forget()
        _workers.add(self)

    def forget(self) -> None:
        """Forget the process, which belongs to another process after a fork."""
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped: Event | None = None

    def ask(self, kind: str, *arguments: Any, stopped: Event | None = None) -> bytes:
        """Return the result of a job. Raises ValueError with the reason if it fails.

        Args:
            kind: A function that returns bytes, as `module:name`.
            arguments: Arguments of the function, of built-in types.
            stopped: Identifies the job for `stop`.
        """
        job = pickle.dumps((self.seconds, kind, arguments))
        with self._lock:
            self._stopped = stopped
            if self._process is not None and self._process.poll() is not None:
                self._end()
            try:
                process = self._process or self._started()
                begun = monotonic()
                answer = None if stopped is not None and stopped.is_set() else _answer(process, job, self.seconds)
            except BaseException:  # even KeyboardInterrupt: the next call must not read this answer
                self._end()
                raise
            self._stopped = None
            if answer is None:
                self._end()
        if answer is None:
            late = monotonic() - begun >= self.seconds
            if stopped is not None and stopped.is_set():
                raise NotStartedError("it was stopped")
            raise LimitError(f"it takes more than {self.seconds:g} seconds" if late else "it takes too much memory")
        error, result = answer
        if error:
            raise ValueError(error)
        return result

    def stop(self, job: Event) -> None:
        """Stop the job that was asked for with this event, now or before it begins: `ask` raises NotStartedError."""
        job.set()
        process = self._process
        if self._stopped is job and process is not None:
            process.kill()
            process.wait()  # so that no later job is sent to it

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._end()

    def _started(self) -> subprocess.Popen[bytes]:
        """Return a new process that is ready. Raises NotStartedError if it ends before."""
        process = self._process = _process()
        if _answer(process, b"", START_SECONDS) is None:
            raise NotStartedError(f"a process for untrusted work did not start: {sys.executable} {WORKER}")
        return process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with suppress(OSError), process:  # waits for it and closes the pipes
                pass


def _process() -> subprocess.Popen[bytes]:
    """Start a new process."""
    return subprocess.Popen(
        [sys.executable, "-P", str(WORKER), str(MEMORY)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        start_new_session=True,  # so that Ctrl-C does not end it
    )


def _answer(process: subprocess.Popen[bytes], job: bytes, seconds: float) -> tuple[str, bytes] | None:
    """Send a job and return its error and its result; None if the process ended without one or was killed after `seconds`."""
    assert process.stdin is not None and process.stdout is not None, "both are pipes"
    # The process limits its own time, so that it also ends without a parent. A stopped process cannot: the parent kills it.
    deadline = Timer(seconds + GRACE_SECONDS, process.kill)
    deadline.daemon = True
    deadline.start()
    try:
        process.stdin.write(job)
        process.stdin.flush()
        return pickle.load(process.stdout)
    except (EOFError, OSError, pickle.UnpicklingError):
        return None
    finally:
        deadline.cancel()
        deadline.join()


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
