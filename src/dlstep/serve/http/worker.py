"""Threads for work whose size clients control, so that the event loop stays responsive."""

import asyncio
from collections import Counter as Counts
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import ParamSpec, TypeVar

from prometheus_client import Counter

from ..router.fair_queue import FairQueue
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
        self._waiting: FairQueue[asyncio.Future[None]] = FairQueue()
        self._counts: Counts[str] = Counts()
        self._turn: asyncio.Future[None] | None = None  # of the task that runs

    async def run(self, owner: str, function: Callable[[Event], Result]) -> Result:
        """Run a function in the thread, return its result. Raises ApiError if the owner has too many tasks."""
        if self._counts[owner] >= self._most:
            self._refused.inc()
            message = (
                f"{self._counts[owner]} requests of this API key wait for the compilation of a constraint: try again later"
            )
            raise ApiError(429, message, code="queue_full", retry_after=RETRY_SECONDS)
        self._counts[owner] += 1
        turn, event = asyncio.get_running_loop().create_future(), Event()
        self._waiting.push(owner, turn)
        self._next()
        try:
            await turn
            return await asyncio.wrap_future(self._thread.submit(function, event))
        finally:
            self._counts[owner] -= 1
            if turn is self._turn:
                self._stop(event)
                self._turn = None
                self._waiting.pop()  # only now, so that all other owners have a turn first
                self._next()
            else:
                self._waiting.remove(owner, turn)

    def _next(self) -> None:
        """Start the next task if none runs."""
        if self._turn is None and self._waiting:
            self._turn = self._waiting.first()
            if not self._turn.done():  # just cancelled: its caller will start the next task
                self._turn.set_result(None)
