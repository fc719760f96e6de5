"""One worker process, as the process that started it sees it.

The parent owns every deadline: it cannot know why a worker is silent (stopped, stuck in a kernel, waiting for a device), so it
presumes a worker that misses a deadline dead, and kills it. SIGKILL also ends a stopped process, SIGTERM does not.
"""

import atexit
import os
import pickle
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from signal import Signals
from typing import Any
from weakref import WeakSet

from .child import Target, last_words, run
from .spawner import start

__all__ = ["Worker", "WorkerDied", "disconnect", "last_words"]

PATIENCE = 5.0  # seconds that a worker has to end by itself, and that the kernel has to end one that was killed


class WorkerDied(Exception):
    """A worker has ended, or was killed for missing a deadline; the message is the reason."""


class Worker:
    """A process that runs `target(connection, *arguments)`; what both sides send is pickled.

    The process is a fresh interpreter: a fork would share sockets, locks and threads. It leaves SIGINT, SIGTERM and SIGHUP to
    its parent, and never outlives it. Several threads may use a worker, of which one at a time sends and one receives.

    Args:
        target: A function of a module, called in the process with the other end of `connection`.
        arguments: What `target` takes after the connection; they must be picklable.
        name: The name of the process, which reasons begin with.
    """

    def __init__(self, target: Target, *arguments: Any, name: str) -> None:
        self.name = name
        self._lock = threading.Lock()  # `Process` lets only one thread at a time ask for the exit code
        self._reason: str | None = None
        self._failed = False  # whether the reason is the process's last words
        packed = pickle.dumps((target, arguments))
        context = get_context("spawn")
        self.connection, connection = context.Pipe()
        self._last_words, words = context.Pipe(duplex=False)
        # Not a daemon for multiprocessing: those may have no children, and are sent SIGTERM at exit.
        self._process: BaseProcess = context.Process(target=run, args=(connection, words, packed), name=name)
        try:
            start(self._process)
        except BaseException:
            self.connection.close()
            self._last_words.close()
            raise
        finally:  # only the process holds these ends now: when it ends, both pipes are at their end
            connection.close()
            words.close()
        _living.add(self)

    @property
    def pid(self) -> int:
        """The number of the process."""
        assert self._process.pid is not None, "it was started"
        return self._process.pid

    @property
    def sentinel(self) -> int:
        """A descriptor that `multiprocessing.connection.wait` finds ready once the process has ended."""
        return self._process.sentinel

    @property
    def alive(self) -> bool:
        """Whether the process runs, or is stopped."""
        with self._lock:
            return self._process.is_alive()

    def send(self, message: Any, seconds: float | None = None) -> None:
        """Send a message. Raises WorkerDied once the process is gone, or if it reads nothing for `seconds` (None: no limit)."""
        with self.deadline(seconds, "read a message"):
            try:
                self.connection.send(message)
            except OSError as error:
                raise WorkerDied(self.reason) from error

    def receive(self, seconds: float | None = None) -> Any:
        """Return the next message. Raises WorkerDied once the process is gone, or after `seconds` without a whole message."""
        with self.deadline(seconds, "answer"):
            try:
                return self.connection.recv()
            except (EOFError, OSError) as error:
                raise WorkerDied(self.reason) from error

    @contextmanager
    def deadline(self, seconds: float | None, task: str) -> Iterator[None]:
        """Kill the process if the block takes longer than `seconds`, which unblocks whatever waits for it.

        The reason then is that the process did not do its `task` ("answer") in this time.
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
        """End the process at once, stopped or not. Nothing waits for it.

        `reason` says why, unless it has ended already, or said itself why it is about to end.
        """
        with self._lock:
            if self._process.is_alive():
                self._explain(reason)
                self._process.kill()

    def end(self, seconds: float = PATIENCE) -> None:
        """Wait `seconds` for a process that was asked to end, then kill it; more than once does no harm."""
        self._join(seconds)
        self.kill(f"did not end within {seconds:g} seconds and was killed")
        self._join(PATIENCE)
        _living.discard(self)

    @property
    def ending(self) -> str:
        """How the process ended, without its last words, which may quote secrets: for those who may not read a log."""
        reason = self.reason
        with self._lock:
            code = self._process.exitcode
        return f"{self.name} {_ending(code)}" if code is not None and self._failed else reason

    @property
    def reason(self) -> str:
        """Why the process ended: why it was killed, or its last words, or its exit code or signal. Waits for its end."""
        self._join(PATIENCE)
        with self._lock:
            code = self._process.exitcode
            if self._reason is None and code is None:
                return f"{self.name} closed its connection but did not end"
            return self._explain("" if code is None else _ending(code))

    def _explain(self, reason: str) -> str:
        """The reason of the death: the first one that was found, else the process's last words, else `reason`."""
        if self._reason is None:
            with suppress(EOFError, OSError):
                if self._last_words.poll():
                    reason, self._failed = f"failed: {self._last_words.recv()}", True
            self._reason = f"{self.name} {reason}"
        return self._reason

    def _join(self, seconds: float) -> None:
        """Wait for the end of the process. Other threads may ask about it meanwhile, so the lock is not held while it runs."""
        if wait([self._process.sentinel], seconds):
            with self._lock:
                self._process.join()  # its files are closed a little before it has an exit code


def _ending(code: int) -> str:
    """How a process with this exit code ended."""
    if code >= 0:
        return f"ended with exit code {code}"
    name = Signals(-code).name if -code in set(Signals) else f"signal {-code}"
    return f"was killed by {name}" + (" (memory may have run out)" if name == "SIGKILL" else "")


def disconnect(connection: Connection) -> None:
    """End a connection for both sides, also for threads that wait at it; what has arrived can still be received.

    Closing it would not wake them, and their file number could be given to another file meanwhile.
    """
    with suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as end:  # gone already, or a pipe of Windows
        end.shutdown(socket.SHUT_RDWR)


_living: WeakSet[Worker] = WeakSet()


@atexit.register
def _kill_all() -> None:
    """Kill what still runs when this process ends, or multiprocessing would wait for it."""
    for worker in list(_living):
        worker.kill()
