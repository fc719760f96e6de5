"""The HTTP process's picture of the engine: who waits, who is answered, what the limits are. It knows nothing of HTTP."""

import asyncio
from collections.abc import Callable, Iterable, Sequence as Items
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Literal

from ..core import State, init
from ..core.ledger import Ending
from ..text import Tokenizer
from .engine_process import Host
from .facts import Texts
from .fair_queue import FairQueue
from .kept import Kept
from .link import Link
from .messages import Cancel, Card, Drop, Failed, Load, Message, Report, Submit
from .metrics import Metrics
from .settings import ServeOptions
from .tickets import Fault, Ticket

AHEAD = 8  # requests that the engine is given beyond those that it decodes at a time
Phase = Literal["loading", "ready", "restarting", "draining", "failed"]


class Busy(Exception):
    """More requests wait than may."""


class NotReady(Exception):
    """Nothing can be answered now, for a reason in words."""


class Front:
    """Tickets in, tickets answered. To be used as an async context, in which the engine lives.

    `tokenizer` stands for the one in the model's folder, for engines that have none.
    """

    def __init__(self, host: Host, options: ServeOptions, tokenizer: Tokenizer | None = None) -> None:
        self.options, self.metrics = options, Metrics()
        self.phase: Phase = "loading"
        self.deaths = 0
        self.load = Load()
        self._card: Card | None = None
        self._first: State | None = None
        self._texts = Texts(tokenizer, "", None)
        self._template = options.template()
        self._link = Link(host, options.max_restarts, self._hear, self._died)
        self._queue: FairQueue[Ticket] = FairQueue()
        self.kept = Kept(options.kept_requests, options.kept_positions, self._drop)
        self._sent: dict[int, Ticket] = {}
        self._timers: dict[int, list[asyncio.TimerHandle]] = {}
        self._ids = count()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._meeting: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Front":
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        if self.phase != "failed":
            self.phase = "draining"
        self._link.close()
        await self._task
        self._end_all("engine_died", "the server has ended")

    async def _run(self) -> None:
        try:
            await self._link.run()
        finally:
            if self.phase != "draining":
                self.phase = "failed"
            self._end_all("engine_died", "the engine is gone")
            self._tell()

    @property
    def failure(self) -> str:
        """Why the engine is gone for good; empty while it is not."""
        if self.phase != "failed":
            return ""
        return self._link.failure or f"the engine died {self.deaths} times"

    @property
    def refused(self) -> bool:
        """Whether the engine could not be made from its options."""
        return bool(self._link.failure)

    @property
    def card(self) -> Card:
        """The facts of the model. Raises NotReady before the engine has told them."""
        if self._card is None:
            raise NotReady(self.why_not_ready() or "the model is loading")
        return self._card

    @property
    def first(self) -> State:
        """The engine's state before any request, by which requests are looked at here. Raises NotReady as `card` does."""
        assert self.card is self._card and self._first is not None, "it comes with the card"
        return self._first

    @property
    def texts(self) -> Texts:
        """How texts become tokens; known once the card is."""
        return self._texts

    @property
    def model(self) -> str:
        """The name of the model to clients."""
        return self.options.served_model_name or self.card.name

    @property
    def most_answers(self) -> int:
        """Most answers that one body may ask for: those that could wait."""
        return self.options.max_queue

    @property
    def most_kept(self) -> int:
        """Most answers whose steps are kept."""
        return self.kept.most

    def why_not_ready(self) -> str:
        """Why no request can be answered now; empty if it can."""
        match self.phase:
            case "ready":
                return ""
            case "loading":
                return "the model is loading"
            case "restarting":
                return f"the engine died and is starting again (restart {self.deaths} of at most {self.options.max_restarts})"
            case "draining":
                return "the server is shutting down"
            case "failed":
                return "the engine is gone and the server is ending"

    @property
    def live(self) -> int:
        """Requests that wait or are answered."""
        return len(self._queue) + len(self._sent)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds of the phase or the number of live requests."""
        while not holds():
            await self._changed.wait()

    def submit(self, asked: Items[Submit], owner: str, changed: Callable[[], None]) -> list[Ticket]:
        """Let requests wait, all or none; `changed` is called whenever there is news of one.

        Raises Busy when the queue cannot hold them, NotReady when nothing can be answered.
        """
        if why := self.why_not_ready():
            raise NotReady(why)
        if len(self._queue) + len(asked) > self.options.max_queue:
            self.metrics.refused.inc(len(asked))
            raise Busy(f"{len(self._queue)} requests are waiting, and at most {self.options.max_queue} may: try again later")
        loop = asyncio.get_running_loop()
        tickets: list[Ticket] = []
        for each in asked:
            ticket = Ticket(each._replace(id=next(self._ids)), owner, loop.time(), changed)
            tickets.append(ticket)
            self._queue.push(owner, ticket)
            if ticket.submit.origin is not None:
                self.kept.forking(ticket.submit.origin.id)
            self._timers[ticket.id] = [
                loop.call_later(self.options.queue_timeout, self._waited_too_long, ticket),
                loop.call_later(self.options.request_timeout, self._took_too_long, ticket),
            ]
        self._pump()
        return tickets

    def cancel(self, tickets: Iterable[Ticket], reason: str) -> None:
        """End answers with what is settled of them; those that have ended stay as they are."""
        for ticket in tickets:
            if ticket.ended is not None:
                continue
            if ticket.sent is None:
                self._queue.remove(ticket.owner, ticket)
                self._finish(ticket, Ending("abort", len(ticket.submit.prompt), reason))
            else:
                self._link.send(Cancel(ticket.id, reason))

    async def drain(self) -> None:
        """Take no more requests; return when those that are here have ended, which they are made to after a while."""
        if self.phase != "failed":
            self.phase = "draining"
        self._tell()
        try:
            async with asyncio.timeout(self.options.drain_seconds):
                await self.until(lambda: not self.live)
        except TimeoutError:
            self.cancel([*self._sent.values(), *self._queue], "the server is shutting down")
            await self.until(lambda: not self.live)

    def _pump(self) -> None:
        """Give the engine as many requests as it can use."""
        if self._card is None or self.phase not in ("ready", "draining"):
            return
        now = asyncio.get_running_loop().time()
        while self._queue and len(self._sent) < self._card.config.max_num_reqs + AHEAD:
            ticket = self._queue.pop()
            ticket.sent = now
            self._sent[ticket.id] = ticket
            self._timers[ticket.id].pop(0).cancel()
            self._link.send(ticket.submit)
            if ticket.submit.origin is not None:
                self.kept.forked(ticket.submit.origin.id)
        self._observe_load()

    def _hear(self, message: Message) -> None:
        match message:
            case Card():
                self._meeting = asyncio.create_task(self._meet(message))
            case Report():
                self._take(message)
            case Failed():
                pass  # the link keeps why
        self._tell()

    async def _meet(self, card: Card) -> None:
        """Get ready for a model that has just been loaded. Its tokenizer is read in a thread: that takes seconds."""
        tokenizer = self._texts.tokenizer
        if tokenizer is None and card.folder is not None:
            tokenizer = await asyncio.to_thread(_tokenizer_in, card.folder)
        self._texts = Texts(tokenizer, card.prompt_end, self._template or card.chat_template)
        self._card, self._first = card, init(card.config, card.strategy)
        if self.phase != "draining":
            self.phase = "ready"
        self._pump()
        self._tell()

    def _take(self, report: Report) -> None:
        now = asyncio.get_running_loop().time()
        self.load = report.load
        self.metrics.work(report.work)
        for news in report.news:
            ticket = self._sent.get(news.id)
            if ticket is None:
                continue
            before = ticket.size
            ticket.take(news, now)
            if ticket.size > before:
                self.kept.grew(ticket.id, ticket.size - before)
            if ticket.ended is not None:
                self._retire(ticket)
        self._pump()

    def _died(self) -> None:
        self.deaths += 1
        self.metrics.deaths.set(self.deaths)
        if self._meeting is not None:
            self._meeting.cancel()
        if self.phase == "ready":
            self.phase = "restarting"
        self.load = Load()
        for ticket in list(self._sent.values()):
            self._finish(ticket, Ending("error", 0, "the engine died; the request can be sent again"), "engine_died")
        for ticket in [ticket for ticket in self._queue if ticket.submit.origin is not None]:
            self._queue.remove(ticket.owner, ticket)
            self._finish(ticket, Ending("error", 0, "the engine died, and with it the step to fork at"), "engine_died")
        self.kept.died()
        self._observe_load()
        self._tell()

    def _end_all(self, fault: Fault, why: str) -> None:
        for ticket in [*self._sent.values(), *self._emptied()]:
            self._finish(ticket, Ending("error", 0, why), fault)

    def _emptied(self) -> list[Ticket]:
        return [self._queue.pop() for _ in range(len(self._queue))]

    def _finish(self, ticket: Ticket, ending: Ending, fault: Fault = "") -> None:
        """End a ticket that the engine does not know, or knows no more."""
        ticket.end(ending, asyncio.get_running_loop().time(), fault)
        self._retire(ticket)
        self._tell()

    def _retire(self, ticket: Ticket) -> None:
        if self._sent.pop(ticket.id, None) is None and ticket.submit.origin is not None:
            self.kept.forked(ticket.submit.origin.id)
        for timer in self._timers.pop(ticket.id, ()):
            timer.cancel()
        self.metrics.ended(ticket)

    def _waited_too_long(self, ticket: Ticket) -> None:
        self._queue.remove(ticket.owner, ticket)
        why = f"the request waited longer than {self.options.queue_timeout:g} seconds: try again later"
        self._finish(ticket, Ending("abort", 0, why), "queue_timeout")

    def _took_too_long(self, ticket: Ticket) -> None:
        self.cancel([ticket], f"the request took longer than {self.options.request_timeout:g} seconds")

    def _drop(self, ticket_id: int) -> None:
        self._link.send(Drop(ticket_id))

    def _observe_load(self) -> None:
        self.metrics.load(self.load, len(self._queue) + max(0, len(self._sent) - self.load.running))

    def _tell(self) -> None:
        """Wake those that wait for a change of the phase or of the number of requests."""
        self._changed.set()
        self._changed = asyncio.Event()


def _tokenizer_in(folder: Path) -> Tokenizer:
    """The tokenizer of a checkpoint; transformers is imported here."""
    from ..tokenizers import load_tokenizer

    return load_tokenizer(folder)
