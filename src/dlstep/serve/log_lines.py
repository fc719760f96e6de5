"""Log lines, written by a thread so that a full disk or a stalled reader cannot delay a request."""

import logging
import os
from collections.abc import Callable
from queue import Full, Queue
from threading import Lock, Thread

MOST = 10_000  # lines in the queue: about one second of a busy server


class LineWriter:
    """Writes lines to a file descriptor. No call raises or blocks.

    Args:
        descriptor: Open file descriptor: 1 is stdout, 2 is stderr.
        dropped: Called, from any thread, for each line that could not be written or did not fit in the queue.
    """

    def __init__(self, descriptor: int, dropped: Callable[[], None] = lambda: None) -> None:
        self._descriptor, self._dropped = descriptor, dropped
        self._lines: Queue[bytes | None] = Queue(MOST)
        self._thread = Thread(target=self._run, name="dlstep-lines", daemon=True)
        self._starting = Lock()

    def write(self, line: str) -> None:
        """Queue a line."""
        with self._starting:
            if self._thread.ident is None:
                self._thread.start()
        try:
            self._lines.put_nowait(line.encode("utf-8", "replace") + b"\n")
        except Full:
            self._dropped()

    def close(self, seconds: float) -> None:
        """Wait up to `seconds` until all lines are written."""
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
                while line:  # a pipe may accept only a part
                    line = line[os.write(self._descriptor, line) :]
            except OSError:
                self._dropped()


STDERR = LineWriter(2)  # messages to the operator; unlike `print`, never blocks on a stalled reader


class SeldomFilter(logging.Filter):
    """A filter that passes one record per source line every `seconds`, and counts the others."""

    def __init__(self, seconds: float = 10.0) -> None:
        super().__init__()
        self._seconds = seconds
        self._last: dict[tuple[str, str], float] = {}
        self._held: dict[tuple[str, str], int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record passes. Add the number of suppressed records to its message."""
        kind = (record.pathname, str(record.lineno))
        if record.created - self._last.get(kind, 0.0) < self._seconds:
            self._held[kind] = self._held.get(kind, 0) + 1
            return False
        if held := self._held.pop(kind, 0):
            record.msg, record.args = f"{record.getMessage()} (and {held} times more since the last such line)", ()
        self._last[kind] = record.created
        return True


class LineHandler(logging.Handler):
    """A `logging` handler that writes records with a `LineWriter`."""

    def __init__(self, writer: LineWriter) -> None:
        super().__init__()
        self._writer = writer
        self.addFilter(SeldomFilter())

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a record."""
        self._writer.write(self.format(record))
