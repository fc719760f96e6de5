"""Threads for work whose size clients control, so that the event loop can always answer `/health`."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from prometheus_client import Counter

from .errors import RETRY_SECONDS, ApiError

Given = ParamSpec("Given")
Found = TypeVar("Found")


class WorkerThread:
    """One thread with a bounded queue.

    Args:
        name: Name of the thread.
        most: Largest number of tasks that run or wait; further tasks are refused with status 429.
        refused: Counts refused tasks.
    """

    def __init__(self, name: str, most: int, refused: Counter) -> None:
        self._thread = ThreadPoolExecutor(1, name)
        self._name, self._most, self._refused = name, most, refused
        self._tasks = 0

    async def run(self, function: Callable[Given, Found], *args: Given.args, **kwargs: Given.kwargs) -> Found:
        """Return the result of the function, which runs in the thread. Raises ApiError if too many tasks wait."""
        if self._tasks >= self._most:
            self._refused.inc()
            said = f"{self._tasks} requests are waiting to be read or encoded: try again later"
            raise ApiError(429, said, code="queue_full", retry_after=RETRY_SECONDS)
        self._tasks += 1
        task = self._thread.submit(function, *args, **kwargs)
        task.add_done_callback(self._done)
        return await asyncio.wrap_future(task)

    def _done(self, task: object) -> None:
        del task
        self._tasks -= 1
