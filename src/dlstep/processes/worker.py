"""The parent's handle of one worker process.

The parent enforces all deadlines. It cannot know why a worker is silent (stopped, stuck in a
kernel, waiting), so it kills a worker that misses a deadline. SIGTERM would not end a stopped one.
"""

import atexit
import os
import pickle
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from queue import SimpleQueue
from signal import Signals
from typing import Any
from weakref import WeakSet

from .child import PARENTS_SIGNALS, Target, last_words, run


class _StartRequest:
    """A process to start, and the outcome."""

    def __init__(self, process: BaseProcess) -> None:
        self.process = process
        self.error: BaseException | None = None
        self.done = threading.Event()
        self.abandoned = False


class _Spawner:
    """The thread that starts all worker processes; it starts with the first process.

    Linux ties a worker to the *thread* that started it (PR_SET_PDEATHSIG) and kills the worker when
    that thread ends. So a single thread, which lives as long as this process, starts all workers. It
    blocks the signals that only the parent handles, also for its workers while they import.
    """

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


if hasattr(os, "register_at_fork"):  # a forked process has no copy of the thread
    os.register_at_fork(after_in_child=_spawner.__init__)


__all__ = ["Worker", "WorkerDied", "disconnect", "last_words"]

PATIENCE = 5.0  # seconds for a worker to exit by itself, and for the kernel to end a killed one


class WorkerDied(Exception):
    """The end of a worker: it exited, or it missed a deadline and was killed. The message is the reason."""


class Worker:
    """A process that runs `target(connection, *arguments)`; messages are pickled in both directions.

    The process is a fresh interpreter, because a fork would share sockets, locks and threads. It
    ignores SIGINT, SIGTERM and SIGHUP, which its parent handles, and never outlives its parent.
    Several threads may use a worker, but only one may send and one may receive at a time.

    Args:
        target: A module-level function, called with the other end of `connection`.
        arguments: Further arguments of `target`; they must be picklable.
        name: The name of the process; every reason begins with it.
    """

    def __init__(self, target: Target, *arguments: Any, name: str) -> None:
        self.name = name
        self._lock = threading.Lock()  # only one thread at a time may ask `Process` for the exit code
        self._reason: str | None = None
        self._failed = False  # whether the reason is the process's last words
        packed = pickle.dumps((target, arguments))
        context = get_context("spawn")
        self.connection, connection = context.Pipe()
        self._last_words, words = context.Pipe(duplex=False)
        # Not daemonic: daemonic processes may not have children, and multiprocessing sends them SIGTERM at exit.
        self._process: BaseProcess = context.Process(target=run, args=(connection, words, packed), name=name)
        try:
            _spawner.start(self._process)
        except BaseException:
            self.connection.close()
            self._last_words.close()
            raise
        finally:  # from now on only the process holds these ends, so both pipes reach EOF when it ends
            connection.close()
            words.close()
        _living.add(self)

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process.pid is not None, "it was started"
        return self._process.pid

    @property
    def sentinel(self) -> int:
        """A descriptor that `multiprocessing.connection.wait` finds ready once the process has ended."""
        return self._process.sentinel

    @property
    def alive(self) -> bool:
        """Whether the process has not ended; a stopped process counts as alive."""
        with self._lock:
            return self._process.is_alive()

    def send(self, message: Any, seconds: float | None = None) -> None:
        """Send a message. Raises WorkerDied if the process ended or read nothing for `seconds`."""
        with self.deadline(seconds, "read a message"):
            try:
                self.connection.send(message)
            except OSError as error:
                raise WorkerDied(self.reason) from error

    def receive(self, seconds: float | None = None) -> Any:
        """Return the next message. Raises WorkerDied if the process is gone, or after `seconds`."""
        with self.deadline(seconds, "answer"):
            try:
                return self.connection.recv()
            except (EOFError, OSError) as error:
                raise WorkerDied(self.reason) from error

    @contextmanager
    def deadline(self, seconds: float | None, task: str) -> Iterator[None]:
        """Kill the process if the block exceeds `seconds`, which unblocks threads waiting for it.

        The reason then states that the process did not do its `task`, such as "answer", in time.
        """
        if seconds is None:
            yield
            return
        timer = threading.Timer(seconds, self.kill, (f"did not {task} within {seconds:g} seconds and was killed",))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def kill(self, reason: str = "was killed") -> None:
        """Kill the process, even if it is stopped, and return without waiting for its end.

        `reason` is recorded unless the process has already ended or sent its last words.
        """
        with self._lock:
            if self._process.is_alive():
                self._explain(reason)
                self._process.kill()

    def end(self, seconds: float = PATIENCE) -> None:
        """Wait up to `seconds` for the process to exit, then kill it. Safe to call more than once."""
        self._join(seconds)
        self.kill(f"did not end within {seconds:g} seconds and was killed")
        self._join(PATIENCE)
        _living.discard(self)

    @property
    def ending(self) -> str:
        """How the process ended, without last words, which may quote secrets: safe for clients."""
        reason = self.reason
        with self._lock:
            code = self._process.exitcode
        return f"{self.name} {_ending(code)}" if code is not None and self._failed else reason

    @property
    def reason(self) -> str:
        """Why the process ended: a kill, last words, exit code or signal. Blocks until it ends."""
        self._join(PATIENCE)
        with self._lock:
            code = self._process.exitcode
            if self._reason is None and code is None:
                return f"{self.name} closed its connection but did not end"
            return self._explain("" if code is None else _ending(code))

    def _explain(self, reason: str) -> str:
        """Return the recorded reason; if there is none, record the last words, or else `reason`."""
        if self._reason is None:
            with suppress(EOFError, OSError):
                if self._last_words.poll():
                    reason, self._failed = f"failed: {self._last_words.recv()}", True
            self._reason = f"{self.name} {reason}"
        return self._reason

    def _join(self, seconds: float) -> None:
        """Wait for the end of the process, without the lock, so that other threads can query it."""
        if wait([self._process.sentinel], seconds):
            with self._lock:
                self._process.join()  # the kernel closes its files shortly before the exit code is available


def _ending(code: int) -> str:
    """Return how a process with this exit code ended."""
    if code >= 0:
        return f"ended with exit code {code}"
    name = Signals(-code).name if -code in set(Signals) else f"signal {-code}"
    return f"was killed by {name}" + (" (memory may have run out)" if name == "SIGKILL" else "")


def disconnect(connection: Connection) -> None:
    """Shut down a connection on both sides: waiting threads wake, received data stays readable.

    Closing it would not wake the threads, and the kernel could reuse the descriptor.
    """
    with suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as end:  # already closed, or a pipe on Windows
        end.shutdown(socket.SHUT_RDWR)


_living: WeakSet[Worker] = WeakSet()


@atexit.register
def _kill_all() -> None:
    """Kill workers that still run when this process exits: multiprocessing would wait for them."""
    for worker in list(_living):
        worker.kill()
