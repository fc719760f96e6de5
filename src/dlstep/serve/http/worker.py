"""Threads for work whose size clients control, so that the event loop stays responsive."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from prometheus_client import Counter

from .errors import RETRY_SECONDS, ApiError

Params = ParamSpec("Params")
Result = TypeVar("Result")


class WorkerThread:
    """A single thread with a bounded queue.

    Args:
        name: Name of the thread.
        most: Maximum number of running and waiting tasks; further tasks get status 429.
        refused: Counter of these rejected tasks.
    """

    def __init__(self, name: str, most: int, refused: Counter) -> None:
        self._thread = ThreadPoolExecutor(1, name)
        self._name, self._most, self._refused = name, most, refused
        self._tasks = 0

    async def run(self, function: Callable[Params, Result], *args: Params.args, **kwargs: Params.kwargs) -> Result:
        """Run a function in the thread, return its result. Raises ApiError if the queue is full."""
        if self._tasks >= self._most:
            self._refused.inc()
            message = f"{self._tasks} requests are waiting to be read or encoded: try again later"
            raise ApiError(429, message, code="queue_full", retry_after=RETRY_SECONDS)
        self._tasks += 1
        task = self._thread.submit(function, *args, **kwargs)
        task.add_done_callback(self._done)
        return await asyncio.wrap_future(task)

    def _done(self, task: object) -> None:
        del task
        self._tasks -= 1
