"""One worker process: the code that runs inside it, and its parent's handle.

The parent enforces all deadlines. It cannot know why a worker is silent (stopped, stuck in a
kernel, waiting), so it kills a worker that misses a deadline. SIGTERM would not end a stopped one.
"""

import atexit
import os
import pickle
import signal
import socket
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from signal import Signals
from time import monotonic
from typing import Any
from weakref import WeakSet

Target = Callable[..., None]  # takes a Connection first

HEARTBEAT_SECONDS = 1.0  # between heartbeats
LONGEST = 1000  # characters of last words
PARENTS_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]

_words: list[Connection] = []  # the pipe for the last words of this worker; empty in other processes and once they are sent


def run(connection: Connection, words: Connection, packed: bytes) -> None:
    """Run a pickled target in the worker process, and report an uncaught exception to the parent.

    Unpickling imports the target's modules, so import errors are reported too.
    """
    _words.append(words)
    for number in PARENTS_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):  # blocked since the start, see `_signals_blocked`
        signal.pthread_sigmask(signal.SIG_UNBLOCK, PARENTS_SIGNALS)
    threading.Thread(target=_end_with_parent, name="dlstep-parent", daemon=True).start()
    try:
        target, arguments = pickle.loads(packed)
        target(connection, *arguments)
    except Exception as error:
        last_words(_described(error))
        raise  # multiprocessing prints the traceback and ends the process with exit code 1


def last_words(reason: str) -> None:
    """Report to the parent why this worker is about to end. Only the first call has an effect."""
    with suppress(IndexError, OSError):  # not a worker, a reason was already sent, or the parent is gone
        _words.pop().send(" ".join(reason.split())[:LONGEST])


def _described(error: BaseException) -> str:
    """Return an exception as one line: its class, its message, and the file and line that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    location = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{location}"


def _end_with_parent() -> None:
    """Wait for the end of the parent, then end this process, even in the middle of a forward pass."""
    parent = parent_process()
    assert parent is not None, "a worker is started by another process"
    wait([parent.sentinel])
    os._exit(1)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A heartbeat message; `progress` changes whenever the process has made progress."""

    progress: int


class Heart:
    """The worker's end of its connection. A thread sends heartbeats; any thread may send messages.

    The worker increments `progress` for each finished unit of work.
    """

    def __init__(self, connection: Connection) -> None:
        self.progress, self.connection = 0, connection
        self._sending, self._closed = threading.Lock(), threading.Event()
        self.send(Heartbeat(0))
        threading.Thread(target=self._beat, name="dlstep-heartbeat", daemon=True).start()

    def send(self, message: Any) -> None:
        """Send a message. Raises OSError once either end of the connection is closed."""
        with self._sending:
            self.connection.send(message)

    def close(self) -> None:
        """Send no more heartbeats, and close the connection, but never while a thread writes to it."""
        self._closed.set()
        with self._sending:
            self.connection.close()

    def _beat(self) -> None:
        with suppress(OSError):
            while not self._closed.wait(HEARTBEAT_SECONDS):
                self.send(Heartbeat(self.progress))


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """Block the signals that only the parent handles; a process that starts meanwhile inherits the block."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    from multiprocessing.resource_tracker import ensure_running

    ensure_running()  # otherwise the first process starts it, which unblocks SIGINT and SIGTERM
    before = signal.pthread_sigmask(signal.SIG_BLOCK, PARENTS_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


PATIENCE = 5.0  # seconds for a worker to exit by itself, and for the kernel to end a killed one
IMPORT_SECONDS = 60.0  # minimum silence limit before the first heartbeat: imports are slow


class WorkerDied(Exception):
    """The end of a worker: it exited, or it missed a deadline and was killed. The message is the reason."""


class Worker:
    """A process that runs `target(connection, *arguments)`; messages are pickled in both directions.

    The process is a fresh interpreter, because a fork would share sockets, locks and threads. It
    ignores SIGINT, SIGTERM and SIGHUP, which its parent handles, and never outlives its parent.
    Several threads may use a worker, but only one may send and one may receive at a time. If the
    process has a `Heart`, receive messages with `watch`, otherwise with `receive`.

    Args:
        target: A module-level function, called with the other end of `connection`.
        arguments: Further arguments of `target`; they must be picklable.
        name: The name of the process; every reason begins with it.

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
        packed = pickle.dumps((target, arguments))
        context = get_context("spawn")
        self.connection, connection = context.Pipe()
        self._last_words, words = context.Pipe(duplex=False)
        # Not daemonic: daemonic processes may not have children, and multiprocessing sends them SIGTERM at exit.
        self._process: BaseProcess = context.Process(target=run, args=(connection, words, packed), name=name)
        try:
            with _signals_blocked():
                self._process.start()
        except BaseException:  # such as Ctrl-C during the start
            self.connection.close()
            self._last_words.close()
            if self._process.pid is not None:
                self._process.kill()
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

    def receive(self, seconds: float) -> Any:
        """Return the next message. If there is none in `seconds`, kill the process and raise WorkerDied."""
        try:
            if self.connection.poll(seconds):
                return self.connection.recv()
        except (EOFError, OSError) as error:
            raise WorkerDied(self.reason) from error
        self.kill(f"did not answer within {seconds:g} seconds and was killed")
        raise WorkerDied(self.reason)

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
