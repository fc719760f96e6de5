"""Threads for work whose size clients control, so that the event loop stays responsive."""

import asyncio
from collections import Counter as Counts, defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event
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
        self._most, self._refused = most, refused
        self._tasks = 0

    async def run(self, function: Callable[Params, Result], *args: Params.args, **kwargs: Params.kwargs) -> Result:
        """Run a function in the thread, return its result. Raises ApiError if the queue is full."""
        _check_room(self._tasks, self._most, self._refused, "requests are waiting to be read or encoded")
        self._tasks += 1
        task = self._thread.submit(function, *args, **kwargs)
        task.add_done_callback(self._done)
        return await asyncio.wrap_future(task)

    def _done(self, task: object) -> None:
        del task
        self._tasks -= 1


class FairWorker:
    """A single thread for tasks that take seconds; API keys take turns. A task ends when its caller is cancelled.

    Args:
        name: Name of the thread.
        most: Maximum number of running and waiting tasks of a key; further tasks get status 429.
        refused: Counter of these rejected tasks.
        stop: Ends the task that was called with this event.
    """

    def __init__(self, name: str, most: int, refused: Counter, stop: Callable[[Event], None]) -> None:
        self._thread, self._most, self._refused, self._stop = ThreadPoolExecutor(1, name), most, refused, stop
        self._counts: Counts[str] = Counts()
        # One task of each key waits for the thread, in order of arrival; its other tasks wait for that task.
        self._turn, self._turns = asyncio.Lock(), defaultdict[str, asyncio.Lock](asyncio.Lock)

    async def run(self, owner: str, function: Callable[[Event], Result]) -> Result:
        """Run a function in the thread, return its result. Raises ApiError if the owner has too many tasks."""
        waits = "requests of this API key wait for the compilation of a constraint"
        _check_room(self._counts[owner], self._most, self._refused, waits)
        self._counts[owner] += 1
        event = Event()
        try:
            async with self._turns[owner], self._turn:
                try:
                    return await asyncio.wrap_future(self._thread.submit(function, event))
                finally:
                    self._stop(event)
        finally:
            self._counts[owner] -= 1


def _check_room(tasks: int, most: int, refused: Counter, waits: str) -> None:
    """Raise ApiError, and count it, if no further task may wait."""
    if tasks >= most:
        refused.inc()
        raise ApiError(429, f"{tasks} {waits}: try again later", code="queue_full", retry_after=RETRY_SECONDS)
