"""The thread that starts all worker processes.

Linux ties a worker to the *thread* that started it (PR_SET_PDEATHSIG) and kills the worker when
that thread ends. So a single thread, which lives as long as this process, starts all workers. It
blocks the signals that only the parent handles, also for its workers while they import.
"""

import os
import signal
import threading
from multiprocessing.process import BaseProcess
from queue import SimpleQueue

from .child import PARENTS_SIGNALS


class _StartRequest:
    """A process to start, and the outcome."""

    def __init__(self, process: BaseProcess) -> None:
        self.process = process
        self.error: BaseException | None = None
        self.done = threading.Event()
        self.abandoned = False


class _Spawner:
    """The thread that starts processes; it starts with the first process."""

    def __init__(self) -> None:
        self._requests: SimpleQueue[_StartRequest] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="dlstep-spawner", daemon=True)
        self._lock = threading.Lock()

    def start(self, process: BaseProcess) -> None:
        """Start a process. Raises what `process.start()` raises."""
        with self._lock:
            if not self._thread.ident:
                self._thread.start()
        request = _StartRequest(process)
        self._requests.put(request)
        try:
            request.done.wait()
        except BaseException:  # Ctrl-C: the caller never gets a process that starts later, so kill it
            request.abandoned = True
            if request.done.is_set() and request.error is None:
                process.kill()
            raise
        if request.error is not None:
            raise request.error

    def _serve(self) -> None:
        while True:
            request = self._requests.get()
            try:
                _block_signals()
                request.process.start()
            except BaseException as error:  # noqa: BLE001 - the thread that called start() raises it
                request.error = error
            request.done.set()
            if request.abandoned and request.error is None:  # after `done` is set: one of the two threads sees both flags
                request.process.kill()


def _block_signals() -> None:
    """Block the parent's signals in this thread; processes that it starts inherit the block."""
    if hasattr(signal, "pthread_sigmask"):
        from multiprocessing.resource_tracker import ensure_running  # Windows has none

        ensure_running()  # else the first process starts it, which unblocks SIGINT and SIGTERM
        signal.pthread_sigmask(signal.SIG_BLOCK, PARENTS_SIGNALS)


_spawner = _Spawner()


def start(process: BaseProcess) -> None:
    """Start a process from the thread that starts all of them. Raises what `process.start()` raises."""
    _spawner.start(process)


if hasattr(os, "register_at_fork"):  # a forked process has no copy of the thread
    os.register_at_fork(after_in_child=_spawner.__init__)
