"""The queue, limits and life cycle of requests in the HTTP process, and its engines. Independent of HTTP itself."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, count
from threading import Lock
from types import TracebackType
from typing import Any

from ...core import Refused
from ...core.sequence import FinishInfo
from ...processes import Worker
from ...text.detokenize import Tokenizer, load_tokenizer
from ..messages import Cancel, ChangeEngine, Drop, Facts, StepReport, Submit
from ..settings import ServeOptions, template_in
from ..shapes import Phase, ReplicaPhase
from .metrics import Metrics
from .pending_requests import Fault, PendingRequest
from .placement import choose, page_keys
from .recording_store import RecordingStore
from .replica import Deadline, Replica

NOT_READY: dict[Phase, str] = {
    "loading": "the model is loading",
    "silent": "the engine has stopped sending heartbeats; it is restarted if none arrives",
    "draining": "the server is shutting down",
    "failed": "the engine is gone and the server is ending",
}
LOADED: tuple[ReplicaPhase, ...] = "ready", "silent", "unready"  # if there are several, the first is the server's
REMEDY = "over HTTP: POST /resume_memory_occupation or /update_weights_from_disk"
KEPT_POSITIONS = 8_000_000  # of recordings, 100 to 200 bytes each
GRACE = 1.0  # seconds that an engine has to end a cancelled request before the router ends it


class FairQueue:
    """One queue of requests per owner. `pop` serves owners round-robin, so no owner can starve another.

    Iteration begins with the request that `pop` returns next.
    """

    def __init__(self) -> None:
        self._queues: OrderedDict[str, deque[PendingRequest]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def __iter__(self) -> Iterator[PendingRequest]:
        return chain.from_iterable(self._queues.values())

    def push(self, pending: PendingRequest) -> None:
        """Append a request to its owner's queue."""
        self._queues.setdefault(pending.owner, deque()).append(pending)

    def pop(self) -> PendingRequest:
        """Remove and return the first request of the next owner, and move the owner to the end."""
        owner, queue = self._queues.popitem(last=False)
        pending = queue.popleft()
        if queue:
            self._queues[owner] = queue
        return pending

    def remove(self, pending: PendingRequest) -> None:
        """Remove a queued request."""
        self._queues[pending.owner].remove(pending)
        if not self._queues[pending.owner]:
            del self._queues[pending.owner]


# The life of a request.
#
# Until it ends, a request is in exactly one place: in the queue, or in `sent` of one replica. Only the event loop moves
# it, so there is no lock; the thread of a replica receives messages and passes them to the loop.
#
# `submit` puts the request into the queue and starts two timers: `request_timeout` runs until the end, `queue_timeout`
# only while the request waits. `_send_waiting` sends it as soon as a replica has room, and runs again after every change
# that may make room: a report, a heartbeat, an end. From then on the engine decodes: each report appends settled tokens
# (`PendingRequest.apply`), and the last one says how the answer finished. There are three other ends:
#
# - A timer fires, the client disconnects or the server drains (`cancel`). A waiting request ends at once. If the request was
#   sent, the router asks the engine to end it, because only the engine knows which tokens are settled. If the engine does
#   not answer within `GRACE` seconds, or is already silent, the router ends the request itself (`_abandon`). The request
#   still counts toward the load of that engine, which may be decoding it.
# - The engine dies (`on_end`). A request returns to the queue if another engine can start it again: its client has received
#   nothing, and it is no fork and records no steps. This happens only once, because a request that kills engines would
#   otherwise kill all replicas in turn. The others end with an error, and so do waiting forks of the engine's requests.
# - All engines have ended (`_end_all`).
#
# Every end passes through `_retire`, which removes the request from `sent`, cancels its timers and counts it.


class Router:
    """An async context manager that runs one engine for each of `starts` and answers requests.

    Args:
        starts: Each starts the process of an engine.
        options: Limits of requests and engines.
    """

    def __init__(self, starts: Sequence[Callable[[], Worker]], options: ServeOptions) -> None:
        self.options = options
        self.replicas = [Replica(number, start, options, self) for number, start in enumerate(starts)]
        self._draining = self._over = self._paused = False
        self._changing = asyncio.Lock()  # held while the engines change; requests wait
        self.changes: dict[bool, ChangeEngine] = {}  # the last update (True), and the last sleep until the engines wake (False)
        self._tokenizer: Tokenizer | None = None
        self._template = template_in(options.chat_template)
        self._loading = Lock()
        self._queue = FairQueue()
        self.metrics = Metrics(self.replicas, self._queue)
        self.recording_store = RecordingStore(options.kept_requests, options.kept_positions or KEPT_POSITIONS, self._drop)
        self._ids = count()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Router":
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        self._draining = not self._over
        self._close()
        await self._task
        self._end_all("the server has ended")

    async def _run(self) -> None:
        """Wait until all engines have ended."""
        try:
            await asyncio.gather(*map(self._run_replica, self.replicas))
        finally:
            self._over = True
            self._end_all("the engine is gone")
            self._notify()

    async def _run_replica(self, replica: Replica) -> None:
        """Run an engine until it is asked to end, dies too often or cannot be created."""
        try:
            await replica.run()
        finally:
            replica.phase = "failed"
            self.on_end(replica, None)
            if replica.failure and all(other.info is None for other in self.replicas):  # the others would fail, too
                self._close()

    def _close(self) -> None:
        for replica in self.replicas:
            replica.close()

    @property
    def phase(self) -> Phase:
        """The phase of the server as a whole: ready while one engine is, failed once all have failed for good."""
        if self._draining:
            return "draining"
        if self._over:
            return "failed"
        phases = {replica.phase for replica in self.replicas}
        for phase in LOADED:
            if phase in phases:
                return phase
        loaded = any(replica.info is not None for replica in self.replicas)
        return "loading" if phases != {"failed"} and not loaded else "restarting"

    @property
    def deaths(self) -> int:
        """The number of engine deaths."""
        return sum(replica.deaths for replica in self.replicas)

    @property
    def _sent(self) -> list[PendingRequest]:
        """The requests that were sent to engines and have not ended."""
        return [pending for replica in self.replicas for pending in replica.sent.values()]

    @property
    def not_made_reason(self) -> str:
        """Why an engine could not be created; empty if all could."""
        return next((replica.failure for replica in self.replicas if replica.failure), "")

    @property
    def failure(self) -> str | None:
        """Why the engines have failed for good; None if they have not."""
        if self.phase != "failed":
            return None
        last = next((replica.died.reason for replica in self.replicas if replica.died), "")
        return self.not_made_reason or f"the engine died {self.deaths} times; last reason: {last}"

    @property
    def facts(self) -> Facts:
        """The facts of the model. Raises Refused before an engine has loaded it."""
        for replica in self.replicas:
            if replica.info is not None:
                return replica.info
        raise Refused("", "not_ready", self.not_ready_reason() or "the model is loading")

    def not_ready_reason(self) -> str | None:
        """Return why no request can be answered now; None if requests can be answered."""
        if self.phase == "unready":
            problems = [each.info.problem for each in self.replicas if each.phase == "unready" and each.info]
            return f"{problems[0] or 'the engine gets its weights'} ({REMEDY})"
        if self.phase != "restarting":
            return NOT_READY.get(self.phase)
        died = (replica.died for replica in self.replicas if replica.phase == "restarting")
        reason = next((worker.ending for worker in died if worker), "the engine died")
        return f"{reason}; it is restarting (deaths: {self.deaths}, --max_restarts {self.options.max_restarts})"

    @property
    def live(self) -> int:
        """The number of waiting and running requests."""
        return len(self._queue) + len(self._sent)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until `holds()` is true. It may depend on phases and the number of live requests."""
        while not holds():
            await self._changed.wait()

    def submit(
        self, submits: Sequence[Submit], owner: str, changed: Callable[[], None], *, whole: bool = False
    ) -> list[PendingRequest]:
        """Queue all requests, or none. `changed` is called whenever one of them changes.

        `whole`: the clients receive nothing before the end, so another engine may restart a request after
        its engine has died. While all engines are silent, requests wait. Raises Refused if the queue is full, or if no
        request can be answered.
        """
        if (reason := self.not_ready_reason()) and self.phase != "silent":
            raise Refused("", "not_ready", reason)
        if len(self._queue) + len(submits) > self.options.max_queue:
            self.metrics.refused.inc(len(submits))
            raise Refused(
                "",
                "queue_full",
                f"{len(self._queue)} requests are waiting, the limit is {self.options.max_queue}: try again later",
            )
        loop = asyncio.get_running_loop()
        pending_requests: list[PendingRequest] = []
        own = b"" if self.options.share_prefix_cache else owner.encode()
        too_long = f"the request took longer than {self.options.request_timeout:g} seconds"
        for submit in submits:
            salt = own + b"/" + submit.request.salt if submit.request.salt else own
            request = replace(submit.request, id=next(self._ids), salt=salt)
            pending = PendingRequest(submit._replace(request=request), owner, loop.time(), changed, whole=whole)
            pending_requests.append(pending)
            if submit.origin is not None:
                pending.parent = self.recording_store.forking(submit.origin.id)
            elif len(self.replicas) > 1:
                pending.keys = page_keys(self.facts.first, request)
            pending.timers.append(loop.call_later(self.options.request_timeout, self.cancel, [pending], too_long))
            self._enqueue(pending)
        self._send_waiting()
        return pending_requests

    def _enqueue(self, pending: PendingRequest) -> None:
        """Queue a request for at most `queue_timeout` seconds."""
        self._queue.push(pending)
        loop = asyncio.get_running_loop()
        pending.queue_timer = loop.call_later(self.options.queue_timeout, self._waited_too_long, pending)

    async def pause(self) -> None:
        """Make later requests wait until `proceed`, and return once no request is running."""
        self._paused = True
        await self.until(lambda: self._idle)

    def proceed(self) -> None:
        """Continue after `pause`."""
        self._paused = False
        self.on_change()

    @property
    def _idle(self) -> bool:
        return not any(replica.sent or replica.abandoned for replica in self.replicas)

    async def change(self, method: str, *arguments: Any, aborts: bool = False) -> list[Any]:
        """Call a method of all engines' drivers while no request is running, and return the results. Other requests wait.

        Engines that are loaded later do the same first, unless every engine refused it. If only some refuse, they try again;
        one that then refuses an update is not ready. `aborts`: running requests do not finish. Raises Refused if no engine is
        loaded, or if one of them fails.
        """
        async with self._changing:
            if aborts:
                self.cancel(self._sent, "the weights are updated")
            await self.until(lambda: self._idle)
            change, updates, before = ChangeEngine(method, arguments), method == "update", self.changes
            self.changes = {kind: its for kind, its in before.items() if kind is not updates}
            if method != "wake_up":
                self.changes[updates] = change._replace(needed=True)
            if not (engines := [replica for replica in self.replicas if replica.phase in LOADED]):
                raise Refused("", "not_ready", self.not_ready_reason() or "")
            for replica in engines if updates else ():
                self._lose_steps(replica, "not_ready", "the weights were updated")
            refused = engines
            for needed in (False, True):
                for replica in refused:
                    replica.change(change._replace(needed=needed))
                await self.until(lambda: not any(replica.changing for replica in engines))
                loaded = [replica for replica in engines if replica.phase in LOADED]
                refused = [replica for replica in loaded if replica.info and replica.info.refusal]
                if len(refused) == len(engines):
                    self.changes = before
                    break
        if self.phase == "unready":
            self.cancel([*self._queue], self.not_ready_reason() or "")
        self.on_change()
        if len(loaded) < len(engines):
            raise Refused("", "engine_died", "an engine died: it changes when it has restarted")
        facts = [replica.info for replica in engines if replica.info]
        if refusals := [each.refusal for each in facts if each.refusal]:
            raise Refused("", refusals[0].code, f"{len(refused)} of {len(engines)} engines failed: {refusals[0].message}")
        return [each.result for each in facts]

    def cancel(self, pending_requests: Iterable[PendingRequest], reason: str) -> None:
        """End running answers with their settled tokens.

        The engine ends an answer that it has. If it does not within `GRACE` seconds, the router does.
        """
        for pending in pending_requests:
            if pending.ended is not None or pending.cancelled:
                continue
            pending.cancelled = reason
            if pending.sent is None:
                self._queue.remove(pending)
                self._finish(pending, FinishInfo("abort", pending.request.start, reason))
                continue
            assert pending.replica is not None, "it was sent to one"
            replica = self.replicas[pending.replica]
            replica.command(Cancel(pending.id, reason))
            if replica.phase == "silent":
                self._abandon(pending)
            else:
                pending.timers.append(asyncio.get_running_loop().call_later(GRACE, self._abandon, pending))

    def _abandon(self, pending: PendingRequest) -> None:
        """End a cancelled answer that the engine did not end, and ignore later reports about it."""
        assert pending.replica is not None, "it was sent to one"
        replica, settled = self.replicas[pending.replica], pending.request.start + len(pending.tokens)
        replica.abandon(pending)
        if replica.phase == "silent":
            error = f"{pending.cancelled}, and the engine sends no heartbeats; the request can be sent again"
            self._finish(pending, FinishInfo("error", settled, error), "engine_timeout")
        else:
            self._finish(pending, FinishInfo("abort", settled, pending.cancelled))

    async def drain(self) -> None:
        """Reject requests that have not started, and wait for the others, which are cancelled after `drain_seconds`."""
        self._draining, reason = not self._over, NOT_READY["draining"]
        self.cancel([*self._queue], reason)
        for replica in self.replicas:
            for pending in replica.sent.values():
                replica.command(Cancel(pending.id, reason, unstarted=True))
        self._notify()
        try:
            async with asyncio.timeout(self.options.drain_seconds):
                await self.until(lambda: not self.live)
        except TimeoutError:
            self.cancel([*self._sent, *self._queue], reason)
            await self.until(lambda: not self.live)

    def _send_waiting(self) -> None:
        """Send waiting requests to the engines while they have room, unless these pause or change."""
        if self._paused or self._changing.locked():
            return
        now = asyncio.get_running_loop().time()
        while self._queue and (replica := self._replica_for(next(iter(self._queue)))) is not None:
            pending = self._queue.pop()
            assert pending.queue_timer is not None, "it waited"
            pending.queue_timer.cancel()
            replica.send(pending, now)
            if pending.parent is not None:
                self.recording_store.forked(pending.parent)
                pending.parent = None

    def _replica_for(self, pending: PendingRequest) -> Replica | None:
        """Return the replica that has room for a request, or None. Forks go to their parent's."""
        if pending.parent is not None:
            assert pending.parent.keeper is not None, "the engine with the steps of the parent is alive"
            keeper = self.replicas[pending.parent.keeper]
            return keeper if keeper.accepts_requests else None
        candidates = [replica.candidate(pending.keys) for replica in self.replicas if replica.accepts_requests]
        if not candidates:
            return None
        return self.replicas[choose(candidates)]

    def known(self, facts: Facts) -> Facts:
        """Return an engine's facts with the server's options and the tokenizer, which takes seconds to load."""
        with self._loading:  # each replica has a thread, and concurrent imports of transformers fail
            if self._tokenizer is None and facts.folder is not None:
                self._tokenizer = load_tokenizer(facts.folder)
        return facts._replace(
            tokenizer=self._tokenizer,
            model=self.options.served_model_name or facts.model,
            chat_template=self._template or facts.chat_template,
            most_answers=self.options.max_queue,
            most_kept=self.options.kept_requests,
        )

    def on_report(self, replica: Replica, report: StepReport) -> None:
        """Apply the changes of a step, and send waiting requests."""
        now = asyncio.get_running_loop().time()
        replica.load = report.load
        self.metrics.work(replica.number, report)
        for news in report.news:
            pending = replica.sent.get(news.id)
            if pending is None:
                if news.finish_info is not None:
                    replica.abandoned.discard(news.id)
                continue
            pending.apply(news, now)
            if pending.ended is not None:
                self._retire(pending)
        self.on_change()

    def on_change(self) -> None:
        """Send waiting requests and wake the tasks in `until`, after the state of an engine has changed."""
        self._send_waiting()
        self._notify()

    def on_end(self, replica: Replica, deadline: Deadline | None) -> None:
        """Requeue or end the requests of an engine that has ended: requeue those that another engine can answer from the start.

        `deadline` is the deadline that the engine missed; None if it missed none.
        """
        if deadline is not None:
            self.metrics.missed.labels(deadline).inc()
        replica.reset()
        others = any(other.phase in ("ready", "silent") for other in self.replicas)
        reason = replica.died.ending if replica.died else "the engine died"
        for pending in list(replica.sent.values()):
            if pending.cancelled:
                self._finish(pending, FinishInfo("abort", pending.request.start + len(pending.tokens), pending.cancelled))
            elif others and pending.can_restart:
                del replica.sent[pending.id]
                pending.restart()
                self._enqueue(pending)
            else:
                self._finish(pending, FinishInfo("error", 0, f"{reason}; the request can be sent again"), "engine_died")
        self._lose_steps(replica, "engine_died", "the engine died")
        self.on_change()

    def _lose_steps(self, replica: Replica, fault: Fault, reason: str) -> None:
        """Forget the steps that an engine has kept, and end the requests that wait to fork from them."""
        for pending in list(self._queue):
            if pending.parent is not None and pending.parent.keeper == replica.number:
                self._queue.remove(pending)
                self._finish(pending, FinishInfo("error", 0, f"{reason}, and the step to fork from is lost"), fault)
        self.recording_store.died(replica.number)

    def _end_all(self, reason: str) -> None:
        waiting = [self._queue.pop() for _ in range(len(self._queue))]
        for pending in [*self._sent, *waiting]:
            self._finish(pending, FinishInfo("error", 0, reason), "engine_died")

    def _finish(self, pending: PendingRequest, finish_info: FinishInfo, fault: Fault = "") -> None:
        """End a request that no engine has (any more)."""
        pending.end(finish_info, asyncio.get_running_loop().time(), fault)
        self._retire(pending)
        self._notify()

    def _retire(self, pending: PendingRequest) -> None:
        if pending.sent is not None and pending.replica is not None:
            self.replicas[pending.replica].sent.pop(pending.id, None)  # it may have been abandoned
        elif pending.parent is not None:
            self.recording_store.forked(pending.parent)
        pending.release()
        self.metrics.ended(pending)

    def _waited_too_long(self, pending: PendingRequest) -> None:
        self._queue.remove(pending)
        reason = f"the request waited longer than {self.options.queue_timeout:g} seconds: try again later"
        self._finish(pending, FinishInfo("abort", 0, reason), "queue_timeout")

    def _drop(self, pending: PendingRequest) -> None:
        """Make the engine discard the kept steps of an answer."""
        if pending.keeper is not None:
            self.replicas[pending.keeper].command(Drop(pending.id))
            pending.keeper = None

    def _notify(self) -> None:
        """Wake the tasks in `until`. With a new event, each of them wakes exactly once."""
        self._changed.set()
        self._changed = asyncio.Event()
