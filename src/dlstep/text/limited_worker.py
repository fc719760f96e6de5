"""A process that does untrusted work: a copy of it does each job, and ends if the job takes too much processor time or memory.

It is not a `processes.Worker`, because those import the main module and so need a `__main__` guard.
"""

import atexit
import os
import pickle
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from threading import Event, Lock, Timer
from typing import Any

START_SECONDS = 60.0  # for the process to start on a busy machine
JOB_SECONDS = 20.0
MEMORY = 1 << 29  # bytes that jobs may use beyond those of a new process
BUSY = 30  # a job may take this many times its limit of processor time, as other processes may use the processors
WORKER = Path(__file__).with_name("_limited_worker.py")


class NotDoneError(ValueError):
    """Error for a job that failed for a reason other than its arguments, so it may succeed if it is repeated."""


class LimitError(ValueError):
    """Error for a job that exceeds the limit of processor time or memory."""


class LimitedWorker:
    """A process whose copies call functions, started when needed. Thread-safe: one job at a time.

    Args:
        seconds: Limit of the processor time of a job.
    """

    def __init__(self, seconds: float = JOB_SECONDS) -> None:
        self.seconds = seconds
        self.forget()
        atexit.register(self.close)
        if hasattr(os, "register_at_fork"):  # a forked process must not use the pipes of its parent
            os.register_at_fork(after_in_child=self.forget)

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

        Raises:
            NotDoneError: The process was killed, did not start, or the job was stopped or raised another error.
            LimitError: The job exceeds a limit.
        """
        job = pickle.dumps((self.seconds, kind, arguments))
        with self._lock:
            self._stopped = stopped
            try:
                error, result = self._done(job)
            except BaseException:  # even KeyboardInterrupt: the next call must not read this answer
                self._end()
                raise
            finally:
                self._stopped = None
        if result is None:
            raise NotDoneError(error)
        if error:
            raise ValueError(error)
        return result

    def _done(self, job: bytes) -> tuple[str, bytes | None]:
        """Return the error and the result of a job."""
        if self._process is not None and self._process.poll() is not None:
            self._end()
        process, killed = self._process or self._started(), NotDoneError("the process that compiles it was killed: try again")
        if self._stopped is not None and self._stopped.is_set():
            raise killed
        answer = _answer(process, job, self.seconds * BUSY)
        if answer is not None:
            return answer
        ending = signal.Signals(-process.returncode).name if process.returncode < 0 else ""
        if ending == "SIGPROF":
            raise LimitError(f"it takes more than {self.seconds:g} seconds of processor time")
        if ending in ("SIGKILL", "SIGTERM"):
            raise killed
        raise LimitError("it takes too much memory")

    def stop(self, job: Event) -> None:
        """Stop the job that was asked for with this event, now or before it begins: `ask` raises NotDoneError."""
        job.set()
        process = self._process
        if self._stopped is job and process is not None:
            _kill(process)
            process.wait()  # so that no later job is sent to it

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._end()

    def _started(self) -> subprocess.Popen[bytes]:
        """Return a new process that is ready."""
        process = self._process = subprocess.Popen(
            [sys.executable, "-P", str(WORKER), str(MEMORY)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,  # so that Ctrl-C does not end it
        )
        if _answer(process, b"", START_SECONDS) is None:
            raise NotDoneError("the process that compiles it did not start: try again")
        return process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            _kill(process)
            with suppress(OSError), process:  # waits for it and closes the pipes
                pass


def _answer(process: subprocess.Popen[bytes], job: bytes, seconds: float) -> tuple[str, bytes | None] | None:
    """Send a job and return its error and its result; None if the process ended without one or was killed after `seconds`."""
    assert process.stdin is not None and process.stdout is not None, "both are pipes"
    # The process limits its own processor time, so that it also ends without a parent.
    watch = Timer(seconds, _kill, (process,))
    watch.daemon = True
    watch.start()
    try:
        process.stdin.write(job)
        process.stdin.flush()
        return pickle.load(process.stdout)
    except (EOFError, OSError, pickle.UnpicklingError):
        process.wait()
        return None
    finally:
        watch.cancel()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and its copy that does a job."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL) if hasattr(os, "killpg") else process.kill()
