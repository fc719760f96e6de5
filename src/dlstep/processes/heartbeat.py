"""Heartbeats: a thread of a worker process sends them between messages, so that its parent notices when it is stopped."""

import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from time import monotonic, sleep
from typing import Any

from .worker import Worker

HEARTBEAT_SECONDS = 1.0  # between two signs of life
IMPORT_SECONDS = 60.0  # at least, in which a process has imported what it needs for its first sign of life


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A sign of life; `progress` has changed if the process got anywhere since the last one."""

    progress: int


class Heart:
    """A worker process's end of its connection, on which a thread sends heartbeats; any thread may send messages.

    The process counts what it has finished in `progress`.
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
        with suppress(OSError):  # nobody listens any more
            while True:
                sleep(HEARTBEAT_SECONDS)
                self.send(Heartbeat(self.progress))


class Pulse:
    """The signs of life of a worker that has a `Heart`, as its parent sees them.

    Attributes:
        silence: Seconds without any message.
        standstill: Seconds in which `Heart.progress` has not changed.
    """

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.silence = self.standstill = 0.0
        self._progress = -1  # before the first heartbeat

    def take(self, passed: float) -> Iterator[Any]:
        """Yield the messages that have arrived in the `passed` seconds since the last look, without heartbeats."""
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
        """Whether the process gave no sign of life for so many seconds; for its first one it has `IMPORT_SECONDS` at least."""
        return self.silence > (max(seconds, IMPORT_SECONDS) if self._progress < 0 else seconds)

    def stuck(self, seconds: float) -> bool:
        """Whether the process lives, but made no progress for so many seconds."""
        return self.standstill > seconds and self.silence < 2 * HEARTBEAT_SECONDS


class Clock:
    """Seconds between looks at workers. A pause of this process is none of theirs, so it counts as a short one."""

    def __init__(self) -> None:
        self._before = monotonic()

    def wait(self, workers: list[Worker]) -> float:
        """Wait until a worker sends something or ends, or for a heartbeat's time; return the seconds since the last look."""
        wait([end for worker in workers for end in (worker.connection, worker.sentinel)], HEARTBEAT_SECONDS)
        now = monotonic()
        passed, self._before = min(now - self._before, 2 * HEARTBEAT_SECONDS), now
        return passed
