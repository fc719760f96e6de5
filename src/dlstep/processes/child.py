"""The code that runs inside a worker process: signal handling, exit with the parent, last words and heartbeats."""

import os
import pickle
import signal
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple

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
    if hasattr(signal, "pthread_sigmask"):  # blocked since the start, see `worker.py`
        signal.pthread_sigmask(signal.SIG_UNBLOCK, PARENTS_SIGNALS)
    _end_with_parent()
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
    """Make this process end with its parent, even in the middle of a forward pass: a thread waits for the parent."""
    parent = parent_process()
    assert parent is not None, "a worker is started by another process"
    threading.Thread(target=_watch, args=(parent.sentinel,), name="dlstep-parent", daemon=True).start()


def _watch(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


class Heartbeat(NamedTuple):
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
