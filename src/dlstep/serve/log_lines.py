"""Log lines, written by a thread so that a full disk or a stalled reader cannot delay a request."""

import io
import logging
from collections.abc import Callable
from logging.handlers import QueueHandler, QueueListener
from queue import Queue
from threading import Thread

MOST = 10_000  # lines in the queue: about one second of a busy server
LOG = logging.getLogger("dlstep.serve")  # messages to the operator


class LineHandler(QueueHandler):
    """A handler that writes records to a file descriptor. No call raises or blocks.

    Args:
        descriptor: Open file descriptor: 1 is stdout, 2 is stderr.
        dropped: Called, from any thread, for each line that could not be written or did not fit in the queue.
    """

    def __init__(self, descriptor: int, dropped: Callable[[], None] = lambda: None) -> None:
        queue = Queue[logging.LogRecord | None](MOST)
        super().__init__(queue)
        # Without a buffer, a line that cannot be written does not come back with the next one.
        raw = io.FileIO(descriptor, "w", closefd=False)
        writer = logging.StreamHandler(io.TextIOWrapper(raw, "utf-8", "replace", write_through=True))  # type: ignore[arg-type]
        self.handleError = writer.handleError = lambda record: dropped()
        self._lines = QueueListener(queue, writer)
        self._lines.enqueue_sentinel = lambda: queue.put(None)  # waits for room: the default loses the last lines
        self._lines.start()

    def stop(self, seconds: float) -> None:
        """Wait up to `seconds` until all lines are written. No lines may follow."""
        thread = Thread(target=self._lines.stop, daemon=True)
        thread.start()
        thread.join(seconds)
