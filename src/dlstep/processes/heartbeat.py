"""Heartbeats: a thread of each worker process sends them between messages, so the parent notices a stopped worker."""

import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from time import monotonic, sleep
from typing import Any

from .worker import Worker

HEARTBEAT_SECONDS = 1.0  # between two heartbeats
IMPORT_SECONDS = 60.0  # minimum time allowed for the imports before the first heartbeat


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A heartbeat message; `progress` differs from the last one if the process made progress in between."""

    progress: int


class Heart:
    """The worker's end of its connection. A thread sends heartbeats on it, and any thread may send messages.

    The worker increments `progress` for each unit of work that it finishes.
    """

    def __init__(self, connection: Connection) -> None:
        self.progress = 0
        self._connection, self._sending = connection, threading.Lock()
        self.send(Heartbeat(0))
        threading.Thread(target=self._beat, name="dlstep-heartbeat", daemon=True).start()

    def send(self, message: Any) -> None:
        """Send a message. Raises OSError once the parent has closed the connection."""
        with self._sending:
            self._connection.send(message)

    def _beat(self) -> None:
        with suppress(OSError):  # the parent closed the connection
            while True:
                sleep(HEARTBEAT_SECONDS)
                self.send(Heartbeat(self.progress))


class Pulse:
    """The parent's record of the heartbeats of a worker that has a `Heart`.

    Attributes:
        silence: Seconds since the last message of any kind.
        standstill: Seconds since `Heart.progress` last changed.
    """

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.silence = self.standstill = 0.0
        self._progress = -1  # before the first heartbeat

    def take(self, passed: float) -> Iterator[Any]:
        """Yield the messages, except heartbeats, that arrived in the `passed` seconds since the last call."""
        self.silence += passed
        self.standstill += passed
        with suppress(EOFError, OSError):
            while self.worker.connection.poll():
                message = self.worker.connection.recv()
                self.silence = 0.0
                if not isinstance(message, Heartbeat):
                    yield message
                elif message.progress != self._progress:
                    self._progress, self.standstill = message.progress, 0.0

    def silent(self, seconds: float) -> bool:
        """Return whether no message came for `seconds`; before the first heartbeat, for at least `IMPORT_SECONDS`."""
        return self.silence > (max(seconds, IMPORT_SECONDS) if self._progress < 0 else seconds)

    def stuck(self, seconds: float) -> bool:
        """Return whether heartbeats still arrive but `progress` has not changed for `seconds`."""
        return self.standstill > seconds and self.silence < 2 * HEARTBEAT_SECONDS


class Clock:
    """A clock of the time between two checks of the workers. It caps the time for which this process itself was paused."""

    def __init__(self) -> None:
        self._before = monotonic()

    def wait(self, workers: list[Worker]) -> float:
        """Wait until a worker sends or ends, at most `HEARTBEAT_SECONDS`; return the seconds since the last call."""
        wait([end for worker in workers for end in (worker.connection, worker.sentinel)], HEARTBEAT_SECONDS)
        now = monotonic()
        passed, self._before = min(now - self._before, 2 * HEARTBEAT_SECONDS), now
        return passed
