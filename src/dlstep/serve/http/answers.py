"""One HTTP request: its pending requests, the response or stream built from them, and its line in the log."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any, TypeVar

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from ...core import Refused
from ..log_lines import LineHandler
from ..router.pending_requests import Head, PendingRequest
from ..router.recording_store import KeptRequest
from ..router.router import Router
from .errors import fault_of, first_fault
from .replies import PING, Reply, read_choices
from .schema import ForkRequest, ReadRequest, Sampling
from .translate import TranslatedBody

Result = TypeVar("Result")
Body = Sampling | ReadRequest | ForkRequest
GONE = "the client disconnected"
LAST_LINES = 1.0  # seconds to write the last log lines when the server exits


class AnswerJob:
    """The answers to one request body. Raises Refused, as `Router.submit` does.

    `ended` is called with the job once its response is complete or its client has disconnected.
    """

    def __init__(
        self,
        router: Router,
        head: Head,
        body: Body,
        translated: TranslatedBody,
        owner: str,
        ended: Callable[["AnswerJob"], None],
        kind: type[Reply],
    ) -> None:
        self.head, self.body, self.owner = head, body, owner
        self._router, self._ended = router, ended
        self._changed, self._failed = asyncio.Event(), False
        self.pending_requests = router.submit(translated.submits, owner, self._changed.set, whole=not body.stream)
        for pending, (opening, frame) in zip(self.pending_requests, translated.openings, strict=False):
            pending.open(opening, frame)
        if translated.submits[0].keeps:
            router.recording_store.add(KeptRequest(head, owner, tuple(self.pending_requests)))
        self.choices = read_choices(self.pending_requests, head, router.facts)
        self._reply = kind(head, body, self.choices, translated.echoes)

    def cancel(self, reason: str) -> None:
        """End the answers that have not ended, because the client asked for it or has disconnected."""
        for pending in self.pending_requests:
            pending.unwanted = True
        self._router.cancel(self.pending_requests, reason)

    async def whole(self, request: Request) -> Response:
        """Return the response once all answers have ended, or one has failed. A disconnect cancels them."""
        try:
            await unless_gone(request.receive, self._until(lambda: all(pending.ended for pending in self.pending_requests)))
            if fault := first_fault(self.pending_requests):
                raise Refused(*fault)
            body = await asyncio.to_thread(lambda: to_json(self._reply.whole()))  # may take 10 µs per token
            return Response(body, media_type="application/json")
        finally:
            self._close()

    async def stream(self, request: Request) -> Response:
        """Return a response that streams the answers, once one has begun or all have waited for `ping_seconds`."""
        try:
            begin = self._reply.begin()  # its usage has no tokens yet
            with suppress(TimeoutError):
                async with asyncio.timeout(self._router.options.ping_seconds):
                    await unless_gone(request.receive, self._until(self._begun))
            if not self._begun() and (fault := first_fault(self.pending_requests)):
                raise Refused(*fault)
        except BaseException:
            self._close()
            raise
        return EventStream(self._events(begin), self._close)

    def _close(self) -> None:
        self.cancel(GONE)
        self._ended(self)

    def _begun(self) -> bool:
        return any(pending.nfe or (pending.ended and not pending.fault) for pending in self.pending_requests)

    async def _until(self, holds: Callable[[], object]) -> None:
        """Wait until a condition holds, or until an answer has failed."""
        while not (holds() or first_fault(self.pending_requests)):
            self._changed.clear()
            await self._changed.wait()

    async def _events(self, begin: bytes) -> AsyncIterator[bytes]:
        """Yield the events of the stream."""
        if begin:
            yield begin
        while not self._over:
            self._changed.clear()
            for part in self._news():
                yield part
                await asyncio.sleep(0)  # a slow client may have thousands of chunks waiting
            while not (self._over or self._changed.is_set()):
                try:
                    async with asyncio.timeout(self._router.options.ping_seconds):
                        await self._changed.wait()
                except TimeoutError:
                    yield PING
        if not self._failed:
            yield self._reply.end()

    @property
    def _over(self) -> bool:
        """Whether the stream has sent an error, or the end of every answer."""
        return self._failed or all(choice.ended for choice in self.choices)

    def _news(self) -> Iterator[bytes]:
        """Yield the new chunks, or the error that ends the stream."""
        for choice in self.choices:
            if not choice.ended and (fault := fault_of(choice.pending)) is not None:
                self._failed = True
                yield self._reply.failed(fault)
                return
            while (piece := choice.piece()) is not None:
                yield self._reply.piece(choice, piece)


class RequestLog:
    """One JSON line per request on stdout: its cost and finish reasons. Lines that cannot be written are counted."""

    def __init__(self, router: Router) -> None:
        self._prompts = router.options.log_prompts
        self._handler = LineHandler(1, router.metrics.unlogged.inc) if router.options.log_requests else None

    def write(self, job: AnswerJob) -> None:
        """Write the line of a request whose answers have ended or were just cancelled."""
        if self._handler is None:
            return
        row = _row(job, asyncio.get_running_loop().time())
        if self._prompts:
            row["prompts"] = [pending.request.prompt for pending in job.pending_requests]
            row["texts"] = [choice.text for choice in job.choices]
        self._handler.handle(logging.makeLogRecord({"msg": json.dumps(row)}))

    def close(self) -> None:
        """Wait until all lines are written, but not for a stalled reader."""
        if self._handler is not None:
            self._handler.stop(LAST_LINES)


def _row(job: AnswerJob, now: float) -> dict[str, object]:
    """Return the log line of a request as a dictionary. Running answers count as ended `now`."""
    pending_requests = job.pending_requests
    errors = sorted({pending.error for pending in pending_requests if pending.error})
    return {
        "time": round(time.time(), 3),
        "id": job.head.id,
        "owner": job.owner,
        "answers": len(pending_requests),
        "prompt_tokens": sum(len(pending.request.prompt) for pending in pending_requests),
        "tokens": sum(len(pending.tokens) for pending in pending_requests),
        "forwards": sum(pending.nfe for pending in pending_requests),
        "finish_reasons": [pending.finish_info.reason if pending.finish_info else "abort" for pending in pending_requests],
        "queued_s": _longest(pending_requests, lambda pending: pending.sent),
        "first_token_s": _longest(pending_requests, lambda pending: pending.first),
        "seconds": _longest(pending_requests, lambda pending: now if pending.ended is None else pending.ended),
        **({"errors": errors} if errors else {}),
    }


def _longest(pending_requests: list[PendingRequest], time_of: Callable[[PendingRequest], float | None]) -> float | None:
    """Return the longest time in seconds from the arrival of a request to `time_of`, or None."""
    seconds = [end - pending.arrived for pending in pending_requests if (end := time_of(pending)) is not None]
    return round(max(seconds), 4) if seconds else None


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, Result]) -> Result:
    """Return the result of `work`. If the client disconnects first, cancel `work` and raise Refused, which is never sent."""
    working, gone = asyncio.create_task(work), asyncio.create_task(_gone(receive))
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise Refused("", "client_gone", GONE)
    finally:
        working.cancel()
        gone.cancel()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream(StreamingResponse):
    """A response of server-sent events. `closed` is called when the stream ends for any reason."""

    def __init__(self, events: AsyncIterator[bytes], closed: Callable[[], None]) -> None:
        super().__init__(
            events, headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}, media_type="text/event-stream"
        )
        self._closed = closed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events until they end or the client disconnects."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._closed()
