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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from signal import Signals
from struct import pack
from time import monotonic
from typing import Any
from weakref import WeakSet

from .child import HEARTBEAT_SECONDS, PARENTS_SIGNALS, Heartbeat, Target, run


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """Block the parent's signals in this thread: a process that it starts inherits the block while it imports."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    from multiprocessing.resource_tracker import ensure_running

    ensure_running()  # else the first process starts it, which unblocks SIGINT and SIGTERM
    before = signal.pthread_sigmask(signal.SIG_BLOCK, PARENTS_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


PATIENCE = 5.0  # seconds for a worker to exit by itself, and for the kernel to end a killed one
IMPORT_SECONDS = 60.0  # minimum silence limit before the first heartbeat (imports are slow); time limit of one read


class Worker:
    """A process that runs `target(connection, *arguments)`; messages are pickled in both directions.

    The process is a fresh interpreter, because a fork would share sockets, locks and threads. It
    ignores SIGINT, SIGTERM and SIGHUP, which its parent handles, and ends with its parent; a
    stopped process ends when it continues.
    Several threads may use a worker, but only one may send and one may receive at a time: `watch` receives
    the messages of a process that has a `Heart`.

    Args:
        target: A module-level function, called with the other end of `connection`.
        arguments: Further arguments of `target`; they must be picklable.
        name: The name of the process; every reason begins with it.

    Raises:
        ValueError: If an argument is not picklable, such as a lambda.

    Attributes:
        inbox: Messages, except heartbeats, that `watch` received.
        ended: Whether `watch` found that the process has ended, or has closed its connection.
        age: Seconds that `watch` has watched the process.
        silence: Seconds since the last message of any kind.
        standstill: Seconds since `Heart.progress` last changed.
    """

    age = silence = standstill = 0.0
    ended = False
    _progress = -1  # before the first heartbeat

    def __init__(self, target: Target, *arguments: Any, name: str) -> None:
        self.name, self.inbox = name, list[Any]()
        self._lock = threading.Lock()  # only one thread at a time may ask `Process` for the exit code
        self._reason: str | None = None
        self._failed = False  # whether the reason is the process's last words
        try:
            packed = pickle.dumps((target, arguments))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            remedy = "define it at the top level of a module, or give the path of a .py file"
            raise ValueError(f"the process {name} cannot receive this value: {error}: {remedy}") from error
        context = get_context("spawn")
        self.connection, connection = context.Pipe()
        # Only for receiving: a full pipe may block a sender for as long as the process computes.
        limit_waits(self.connection, socket.SO_RCVTIMEO, IMPORT_SECONDS)
        self._last_words, words = context.Pipe(duplex=False)
        # Not daemonic: daemonic processes may not have children, and multiprocessing sends them SIGTERM at exit.
        self._process: BaseProcess = context.Process(target=run, args=(connection, words, packed), name=name)
        try:
            with _signals_blocked():
                self._process.start()
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
    def alive(self) -> bool:
        """Whether the process has not ended; a stopped process counts as alive."""
        with self._lock:
            return self._process.is_alive()

    def hear(self, passed: float, *, ready: bool) -> None:
        """Count `passed` more seconds, and receive a message if one is ready."""
        self.age, self.silence, self.standstill = self.age + passed, self.silence + passed, self.standstill + passed
        if not ready:
            self.ended = not self.alive and not self.connection.poll()  # a process that it forked may hold the other end
            return
        try:
            message = self.connection.recv()
        except (EOFError, OSError):
            self.ended = True
            return
        self.silence = 0.0
        if not isinstance(message, Heartbeat):
            self.inbox.append(message)
        elif message.progress != self._progress:
            self._progress, self.standstill = message.progress, 0.0

    def silent_for(self, seconds: float) -> bool:
        """Return whether no message came for `seconds`, or a minimum before the first heartbeat."""
        return self.silence > (max(seconds, IMPORT_SECONDS) if self._progress < 0 else seconds)

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


def watch(workers: Sequence[Worker], seconds: float) -> Iterator[float]:
    """Receive messages of workers. After each message, and at least every `seconds`, yield the time since the last yield.

    The time is capped: while this process is paused, it reads no messages, and this must not count as silence.
    """
    before = monotonic()
    while True:
        ready = wait([worker.connection for worker in workers if not worker.ended], seconds)
        now = monotonic()
        passed, before = min(now - before, 2 * HEARTBEAT_SECONDS), now
        for worker in workers:
            if not worker.ended:
                worker.hear(passed, ready=worker.connection in ready)
        yield passed


def limit_waits(connection: Connection, option: int, seconds: float) -> None:
    """Make the connection raise OSError after waiting `seconds` to receive (`SO_RCVTIMEO`) or to send (`SO_SNDTIMEO`)."""
    with suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as end:  # no effect on a Windows pipe
        end.setsockopt(socket.SOL_SOCKET, option, pack("ll", int(seconds), int(seconds % 1 * 1e6)))


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
