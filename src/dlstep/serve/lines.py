"""Lines for stdout and stderr, written by a thread: a full disk, a closed pipe or a reader that stopped harms no request."""

import logging
import os
from collections.abc import Callable
from queue import Full, Queue
from threading import Lock, Thread

MOST = 10_000  # lines that wait; those of a second on a busy server


class LineWriter:
    """Writes lines to a file descriptor. No call raises or blocks.

    Args:
        descriptor: Open file descriptor: 1 is stdout, 2 is stderr.
        dropped: Called for each line that could not be written, or found no room in the queue; any thread may call it.
    """

    def __init__(self, descriptor: int, dropped: Callable[[], None] = lambda: None) -> None:
        self._descriptor, self._dropped = descriptor, dropped
        self._lines: Queue[bytes | None] = Queue(MOST)
        self._thread = Thread(target=self._run, name="dlstep-lines", daemon=True)
        self._starting = Lock()

    def write(self, line: str) -> None:
        """Let a line be written."""
        with self._starting:
            if self._thread.ident is None:
                self._thread.start()
        try:
            self._lines.put_nowait(line.encode("utf-8", "replace") + b"\n")
        except Full:
            self._dropped()

    def close(self, seconds: float) -> None:
        """Wait until all lines are written, at most so long."""
        if self._thread.ident is None:
            return
        try:
            self._lines.put(None, timeout=seconds)
        except Full:
            return
        self._thread.join(seconds)

    def _run(self) -> None:
        while (line := self._lines.get()) is not None:
            try:
                while line:  # a pipe may take a part
                    line = line[os.write(self._descriptor, line) :]
            except OSError:
                self._dropped()


class SeldomFilter(logging.Filter):
    """Lets each kind of record pass once in `seconds`, and says how many did not: clients can cause thousands a second."""

    def __init__(self, seconds: float = 10.0) -> None:
        super().__init__()
        self._seconds = seconds
        self._last: dict[tuple[str, str], float] = {}
        self._held: dict[tuple[str, str], int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record passes."""
        kind = (record.pathname, str(record.lineno))
        if record.created - self._last.get(kind, 0.0) < self._seconds:
            self._held[kind] = self._held.get(kind, 0) + 1
            return False
        if held := self._held.pop(kind, 0):
            record.msg, record.args = f"{record.getMessage()} (and {held} times more since the last such line)", ()
        self._last[kind] = record.created
        return True


class LineHandler(logging.Handler):
    """Writes records of `logging` by a `LineWriter`."""

    def __init__(self, writer: LineWriter) -> None:
        super().__init__()
        self._writer = writer
        self.addFilter(SeldomFilter())

    def emit(self, record: logging.LogRecord) -> None:
        """Let a record be written."""
        self._writer.write(self.format(record))
