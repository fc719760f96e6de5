"""The queue, limits and life cycle of requests in the HTTP process. Independent of HTTP itself."""

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
GRACE = 1.0  # seconds that an engine has to end a cancelled request before the front ends it


class Busy(Exception):
    """Error: the queue is full."""


class NotReady(Exception):
    """Error: no request can be answered now. The message says why."""


class Front:
    """An async context manager that runs one engine on each of `hosts` and answers tickets.

    `tokenizer` replaces the one in the model's folder, for engines that were not loaded from one.
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
        """The phase of the server as a whole."""
        if self._draining:
            return "draining"
        return "failed" if self._over else "restarting" if self.replicas.phase == "failed" else self.replicas.phase

    @property
    def deaths(self) -> int:
        """The number of engine deaths."""
        return self.replicas.deaths

    @property
    def load(self) -> Load:
        """The total requests and pages of all engines."""
        return self.replicas.load

    @property
    def failure(self) -> str:
        """Why the engines have failed for good; empty if they have not."""
        if self.phase != "failed":
            return ""
        last = next((each.last_death.reason for each in self.replicas if each.last_death), "")
        return self.replicas.why_unmade or f"the engine died {self.deaths} times; last reason: {last}"

    @property
    def refused(self) -> bool:
        """Whether the engine could not be created from its options."""
        return bool(self.replicas.why_unmade)

    @property
    def facts(self) -> Facts:
        """The facts of the model. Raises NotReady before an engine has loaded it."""
        if self._facts is None:
            raise NotReady(self.why_not_ready() or "the model is loading")
        return self._facts

    def why_not_ready(self) -> str:
        """Return why no request can be answered now; empty if requests can be answered."""
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
        """The number of waiting and running requests."""
        return len(self._queue) + self.replicas.requests

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until `holds()` is true. It may depend on phases and the number of live requests."""
        while not holds():
            await self._changed.wait()

    def submit(self, asked: Items[Submit], owner: str, changed: Callable[[], None], *, whole: bool = False) -> list[Ticket]:
        """Queue all requests, or none. `changed` is called whenever one of them changes.

        `whole`: the client gets nothing before the end, so another engine may restart a request whose
        engine dies. Requests for a silent engine wait. Raises Busy if the queue is full, NotReady if
        no request can be answered.
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
        """Queue a ticket for at most `queue_timeout` seconds."""
        self._queue.push(ticket.owner, ticket)
        loop = asyncio.get_running_loop()
        ticket.queue_timer = loop.call_later(self.options.queue_timeout, self._waited_too_long, ticket)

    def cancel(self, tickets: Iterable[Ticket], reason: str) -> None:
        """End running answers with their settled tokens.

        The engine ends an answer that it has. If it does not within `GRACE` seconds, the front does.
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
        """Reject new requests and wait for live ones, which are cancelled after `drain_seconds`."""
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
        """Send waiting requests to the engines while they have room."""
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
        """Return the replica that has room for a ticket, or None. Forks go to their parent's."""
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
        """Prepare for a loaded model. Its tokenizer takes seconds, so a thread loads it."""
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
        """React to an engine that has become silent or ready again."""
        self._pump()
        self._tell()

    def _lose(self, replica: Replica) -> None:
        """End the requests of a dead engine. Requeue those whose clients have received nothing."""
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
        """End a ticket that is in no engine, or no longer."""
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
        """Wake the tasks in `until`. With a new event, each of them wakes exactly once."""
        self._changed.set()
        self._changed = asyncio.Event()


def _tokenizer_in(folder: Path) -> Tokenizer:
    """Load the tokenizer of a checkpoint. Imports transformers only when it is needed."""
    from ...text.tokenizers import load_tokenizer

    return load_tokenizer(folder)
