"""Heartbeats, sent by a thread of each worker, so that the parent notices a stopped worker."""

import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from time import monotonic
from typing import Any

from .worker import Worker

HEARTBEAT_SECONDS = 1.0  # between heartbeats
IMPORT_SECONDS = 60.0  # minimum time allowed for the imports before the first heartbeat


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


class Silence:
    """The parent's record of how long a worker with a `Heart` has been silent or without progress.

    The parent adds the time with `wait`, so time in which the parent was paused does not count.

    Attributes:
        seconds: Seconds since the last message of any kind.
        standstill: Seconds since `Heart.progress` last changed.
    """

    def __init__(self) -> None:
        self.seconds = self.standstill = 0.0
        self._progress = -1  # before the first heartbeat

    def wait(self, passed: float) -> None:
        """Count `passed` more seconds."""
        self.seconds += passed
        self.standstill += passed

    def hear(self, message: Any) -> bool:
        """Record a message. Return whether it is a heartbeat, which needs no further handling."""
        self.seconds = 0.0
        if not isinstance(message, Heartbeat):
            return False
        if message.progress != self._progress:
            self._progress, self.standstill = message.progress, 0.0
        return True

    def longer(self, seconds: float) -> bool:
        """Return whether no message came for `seconds`, or a minimum before the first heartbeat."""
        return self.seconds > (max(seconds, IMPORT_SECONDS) if self._progress < 0 else seconds)


class Pulse:
    """A worker that has a `Heart`, and its `silence`."""

    def __init__(self, worker: Worker) -> None:
        self.worker, self.silence = worker, Silence()

    def take(self, passed: float) -> Iterator[Any]:
        """Yield the messages, except heartbeats, that arrived in the `passed` seconds since the last call."""
        self.silence.wait(passed)
        with suppress(EOFError, OSError):
            while self.worker.connection.poll():
                if not self.silence.hear(message := self.worker.connection.recv()):
                    yield message


class Clock:
    """A clock of the time between two checks of the workers. It caps the time that a pause of this process adds."""

    def __init__(self) -> None:
        self._before = monotonic()

    def wait(self, workers: list[Worker]) -> float:
        """Wait up to `HEARTBEAT_SECONDS` for a worker to send or end. Return `passed()`."""
        wait([end for worker in workers for end in (worker.connection, worker.sentinel)], HEARTBEAT_SECONDS)
        return self.passed()

    def passed(self) -> float:
        """Return the capped seconds since the last call of this method or of `wait`."""
        now = monotonic()
        passed, self._before = min(now - self._before, 2 * HEARTBEAT_SECONDS), now
        return passed
