"""The HTTP process's picture of its engines: who waits, who is answered, what the limits are. It knows nothing of HTTP."""

import asyncio
from collections.abc import Callable, Iterable, Sequence as Items
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Literal

from ...core import Request
from ...core.ledger import Ending
from ...text.detokenize import Tokenizer
from ..engine_process import Host
from ..facts import Facts, known_facts
from ..messages import Cancel, Card, Drop, Load, Message, Report, Submit
from ..settings import ServeOptions
from .fair_queue import FairQueue
from .fleet import Fleet
from .kept import Kept
from .link import Deadline
from .metrics import Metrics
from .placement import page_keys
from .replica import Replica
from .tickets import Fault, Ticket

Phase = Literal["loading", "ready", "silent", "restarting", "draining", "failed"]
GRACE = 1.0  # seconds that an engine has to end a cancelled request; then the front ends it


class Busy(Exception):
    """More requests wait than may."""


class NotReady(Exception):
    """Nothing can be answered now, for a reason in words."""


class Front:
    """Tickets in, tickets answered. To be used as an async context, in which the engines live, one on each of `hosts`.

    `tokenizer` stands for the one in the model's folder, for engines that have none.
    """

    def __init__(self, hosts: Items[Host], options: ServeOptions, tokenizer: Tokenizer | None = None) -> None:
        self.options, self.metrics = options, Metrics(len(hosts))
        self.replicas = Fleet(
            hosts, options, heard=self._hear, lost=self._lose, died=self._died, turned=self._turned, tell=self._tell
        )
        self._draining = self._over = False
        self._facts: Facts | None = None  # of the newest engine
        self._tokenizer, self._template = tokenizer, options.template()
        self._queue: FairQueue[Ticket] = FairQueue()
        self.kept = Kept(options.kept_requests, options.kept_positions, self._drop)
        self._ids = count()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Front":
        self.replicas.start()
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        self._draining = not self._over
        self.replicas.close()
        await self._task
        self._end_all("engine_died", "the server has ended")

    async def _run(self) -> None:
        try:
            await self.replicas.run()
        finally:
            self._over = True
            self._end_all("engine_died", "the engine is gone")
            self._tell()

    @property
    def phase(self) -> Phase:
        """The state of the server as a whole."""
        if self._draining:
            return "draining"
        return "failed" if self._over else "restarting" if self.replicas.phase == "failed" else self.replicas.phase

    @property
    def deaths(self) -> int:
        """How often an engine died."""
        return self.replicas.deaths

    @property
    def load(self) -> Load:
        """Requests and pages of all engines."""
        return self.replicas.load

    @property
    def failure(self) -> str:
        """Why the engine is gone for good; empty while it is not."""
        if self.phase != "failed":
            return ""
        last = next((each.last_death.reason for each in self.replicas if each.last_death), "")
        return self.replicas.why_unmade or f"the engine died {self.deaths} times; last reason: {last}"

    @property
    def refused(self) -> bool:
        """Whether the engine could not be made from its options."""
        return bool(self.replicas.why_unmade)

    @property
    def facts(self) -> Facts:
        """The facts of the model. Raises NotReady before an engine has loaded it."""
        if self._facts is None:
            raise NotReady(self.why_not_ready() or "the model is loading")
        return self._facts

    def why_not_ready(self) -> str:
        """Why no request can be answered now; empty if it can."""
        match self.phase:
            case "ready":
                return ""
            case "loading":
                return "the model is loading"
            case "silent":
                return "the engine has stopped sending heartbeats; it is restarted if none arrives"
            case "restarting":
                return self.replicas.why_restarting
            case "draining":
                return "the server is shutting down"
            case "failed":
                return "the engine is gone and the server is ending"

    @property
    def live(self) -> int:
        """Requests that wait or are answered."""
        return len(self._queue) + self.replicas.requests

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds of the phases or the number of live requests."""
        while not holds():
            await self._changed.wait()

    def submit(self, asked: Items[Submit], owner: str, changed: Callable[[], None], *, whole: bool = False) -> list[Ticket]:
        """Let requests wait, all or none; `changed` is called whenever there is news of one.

        `whole`: nothing is told of them before their end, so that another engine may begin them again when theirs dies.
        Raises Busy if the queue is full, NotReady if no request can be answered. Requests for a silent engine wait.
        """
        if (why := self.why_not_ready()) and self.phase != "silent":
            raise NotReady(why)
        if len(self._queue) + len(asked) > self.options.max_queue:
            self.metrics.refused.inc(len(asked))
            raise Busy(f"{len(self._queue)} requests are waiting, and at most {self.options.max_queue} may: try again later")
        loop = asyncio.get_running_loop()
        tickets: list[Ticket] = []
        salt = b"" if self.options.share_prefix_cache else owner.encode()
        for each in asked:
            ticket = Ticket(each._replace(id=next(self._ids), salt=salt), owner, loop.time(), changed, whole=whole)
            tickets.append(ticket)
            if each.origin is not None:
                ticket.parent = self.kept.forking(each.origin.id)
            elif len(self.replicas) > 1:
                ticket.keys = page_keys(self.facts.first, Request(0, each.prompt, each.params, salt=salt))
            ticket.timers.append(loop.call_later(self.options.request_timeout, self._took_too_long, ticket))
            self._wait(ticket)
        self._pump()
        return tickets

    def _wait(self, ticket: Ticket) -> None:
        """Put a ticket into the queue, for so long."""
        self._queue.push(ticket.owner, ticket)
        loop = asyncio.get_running_loop()
        ticket.queue_timer = loop.call_later(self.options.queue_timeout, self._waited_too_long, ticket)

    def cancel(self, tickets: Iterable[Ticket], reason: str) -> None:
        """End answers with their settled tokens. Answers that have ended stay as they are.

        The engine ends the answer. If it does not within `GRACE` seconds, the front does.
        """
        for ticket in tickets:
            if ticket.ended is not None or ticket.cancelled:
                continue
            ticket.cancelled = reason
            if ticket.sent is None:
                self._queue.remove(ticket.owner, ticket)
                self._finish(ticket, Ending("abort", len(ticket.submit.prompt), reason))
                continue
            assert ticket.replica is not None, "it was sent to one"
            link = self.replicas[ticket.replica].link
            link.send(Cancel(ticket.id, reason))
            if link.silent:
                self._abandon(ticket)
            else:
                ticket.timers.append(asyncio.get_running_loop().call_later(GRACE, self._abandon, ticket))

    def _abandon(self, ticket: Ticket) -> None:
        """End a cancelled answer that the engine did not end, and ignore later reports about it."""
        assert ticket.replica is not None, "it was sent to one"
        replica, settled = self.replicas[ticket.replica], len(ticket.submit.prompt) + len(ticket.tokens)
        replica.abandon(ticket)
        if replica.link.silent:
            said = f"{ticket.cancelled}, and the engine sends no heartbeats; the request can be sent again"
            self._finish(ticket, Ending("error", settled, said), "engine_timeout")
        else:
            self._finish(ticket, Ending("abort", settled, ticket.cancelled))

    async def drain(self) -> None:
        """Take no more requests; return when those that are here have ended, which they are made to after a while."""
        self._draining = not self._over
        self._tell()
        try:
            async with asyncio.timeout(self.options.drain_seconds):
                await self.until(lambda: not self.live)
        except TimeoutError:
            under_way = [ticket for replica in self.replicas for ticket in replica.sent.values()]
            self.cancel([*under_way, *self._queue], "the server is shutting down")
            await self.until(lambda: not self.live)

    def _pump(self) -> None:
        """Give the engines as many requests as they can use."""
        now = asyncio.get_running_loop().time()
        while self._queue and (replica := self._replica_for(self._queue.first())) is not None:
            ticket = self._queue.pop()
            assert ticket.queue_timer is not None, "it waited"
            ticket.queue_timer.cancel()
            replica.give(ticket, now)
            if ticket.parent is not None:
                self.kept.forked(ticket.parent)
                ticket.parent = None
        self._observe_load()

    def _replica_for(self, ticket: Ticket) -> Replica | None:
        """The replica that a ticket is given to now, if there is one."""
        if ticket.parent is not None:
            assert ticket.parent.keeper is not None, "the engine that has the steps of the parent lives"
            keeper = self.replicas[ticket.parent.keeper]
            return keeper if keeper.takes_forks else None
        return self.replicas.taker(ticket.keys)

    def _hear(self, replica: Replica, message: Message) -> None:
        match message:
            case Card():
                replica.meeting = asyncio.create_task(self._meet(replica, message))
            case Report():
                self._take(replica, message)
            case _:
                return  # the link keeps the reason of a failed start
        self._tell()

    async def _meet(self, replica: Replica, card: Card) -> None:
        """Get ready for a model that has just been loaded. Its tokenizer is read in a thread: that takes seconds."""
        if self._tokenizer is None and card.folder is not None:
            self._tokenizer = await asyncio.to_thread(_tokenizer_in, card.folder)
        options = self.options
        self._facts = known_facts(
            card, self._tokenizer, options.served_model_name, self._template, options.max_queue, options.kept_requests
        )
        replica.meet(card)
        self._pump()
        self._tell()

    def _take(self, replica: Replica, report: Report) -> None:
        now = asyncio.get_running_loop().time()
        replica.load = report.load
        self.metrics.work(replica.number, report)
        for news in report.news:
            ticket = replica.sent.get(news.id)
            if ticket is None:
                if news.ending is not None:
                    replica.abandoned.discard(news.id)
                continue
            before = ticket.size
            ticket.take(news, now)
            if ticket.size > before:
                self.kept.grew(ticket, ticket.size - before)
            if ticket.ended is not None:
                self._retire(ticket)
        self._pump()

    def _died(self, deadline: Deadline | None) -> None:
        self.metrics.deaths.set(self.deaths)
        if deadline is not None:
            self.metrics.missed.labels(deadline).inc()

    def _turned(self) -> None:
        """React to an engine that has become silent, or sends heartbeats again."""
        self._pump()
        self._tell()

    def _lose(self, replica: Replica) -> None:
        """End or move the requests of a dead engine. A request moves to another engine if its client was sent nothing yet."""
        replica.lose()
        others = any(other.phase in ("ready", "silent") for other in self.replicas)
        told = replica.last_death.told if replica.last_death else "the engine died"
        for ticket in list(replica.sent.values()):
            if ticket.cancelled:
                self._finish(ticket, Ending("abort", len(ticket.submit.prompt) + len(ticket.tokens), ticket.cancelled))
            elif others and ticket.can_begin_again:
                replica.take_back(ticket)
                ticket.begin_again()
                self._wait(ticket)
            else:
                self._finish(ticket, Ending("error", 0, f"{told}; the request can be sent again"), "engine_died")
        for ticket in list(self._queue):
            if ticket.parent is not None and ticket.parent.keeper == replica.number:
                self._queue.remove(ticket.owner, ticket)
                self._finish(ticket, Ending("error", 0, "the engine died, and with it the step to fork at"), "engine_died")
        self.kept.died(replica.number)
        self._pump()
        self._tell()

    def _end_all(self, fault: Fault, why: str) -> None:
        under_way = [ticket for replica in self.replicas for ticket in replica.sent.values()]
        for ticket in [*under_way, *self._emptied()]:
            self._finish(ticket, Ending("error", 0, why), fault)

    def _emptied(self) -> list[Ticket]:
        return [self._queue.pop() for _ in range(len(self._queue))]

    def _finish(self, ticket: Ticket, ending: Ending, fault: Fault = "") -> None:
        """End a ticket that the engine does not know, or knows no more."""
        ticket.end(ending, asyncio.get_running_loop().time(), fault)
        self._retire(ticket)
        self._tell()

    def _retire(self, ticket: Ticket) -> None:
        if ticket.sent is not None and ticket.replica is not None:
            if ticket.id in (replica := self.replicas[ticket.replica]).sent:  # it was not abandoned
                replica.take_back(ticket)
        elif ticket.parent is not None:
            self.kept.forked(ticket.parent)
        ticket.release()
        self.metrics.ended(ticket)

    def _waited_too_long(self, ticket: Ticket) -> None:
        self._queue.remove(ticket.owner, ticket)
        why = f"the request waited longer than {self.options.queue_timeout:g} seconds: try again later"
        self._finish(ticket, Ending("abort", 0, why), "queue_timeout")

    def _took_too_long(self, ticket: Ticket) -> None:
        self.cancel([ticket], f"the request took longer than {self.options.request_timeout:g} seconds")

    def _drop(self, ticket: Ticket) -> None:
        """Make the engine that keeps the steps of an answer forget them."""
        if ticket.keeper is not None:
            self.replicas[ticket.keeper].link.send(Drop(ticket.id))
            ticket.keeper = None

    def _observe_load(self) -> None:
        waiting = len(self._queue)
        for replica in self.replicas:
            beyond = max(0, len(replica.sent) - replica.load.running)
            self.metrics.replica(replica.number, replica.load, beyond, replica.deaths, up=replica.phase in ("ready", "resting"))
            waiting += beyond
        self.metrics.load(self.load, waiting)

    def _tell(self) -> None:
        """Wake those that wait for a change of a phase or of the number of requests."""
        self._changed.set()
        self._changed = asyncio.Event()


def _tokenizer_in(folder: Path) -> Tokenizer:
    """The tokenizer of a checkpoint; transformers is imported here."""
    from ...text.tokenizers import load_tokenizer

    return load_tokenizer(folder)
