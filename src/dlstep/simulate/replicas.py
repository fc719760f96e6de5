"""Replicas in virtual time: real schedulers with scripted samples, and the server's placement."""

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from ..core import Config, Plan, Samples, Span, SpanSamples, State, Strategy, add, commit, init, prune, schedule
from ..serve.router.placement import Candidate, Pages, bound, choose, page_keys
from .costs import Size, StepCost, size_of
from .work import SamplesScript, SimulatedRequest

AHEAD = 8  # requests that a replica holds beyond those that it decodes, as in `dlstep serve`


@dataclass(frozen=True, slots=True)
class Fate:
    """The course of a request: replica, times in seconds, tokens emitted, and prompt tokens found in pages."""

    number: int
    replica: int
    came: float
    began: float
    ended: float
    tokens: int
    forwards: int
    found: int


@dataclass(slots=True)
class Course:
    """The outcome of a run: fates in order of completion, busy seconds per replica, and the summed sizes."""

    fates: list[Fate] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    size: Size = field(default_factory=lambda: Size(0.0))


class Chooser:
    """`serve.router.placement.choose` over all replicas with room, without scanning all of them.

    Of the replicas without any page of a prompt, only the first with the fewest requests can be
    chosen. Replicas that may have a page are indexed by the key of the first page.
    """

    def __init__(self, replicas: int, room: int, pages: int) -> None:
        self._sent = [0] * replicas
        self._room = room
        self._pages = [Pages(pages) for _ in range(replicas)]
        self._heap = [(0, number) for number in range(replicas)]
        heapify(self._heap)
        self._holders: dict[bytes, set[int]] = defaultdict(set)
        self._able, self._requests = replicas, 0  # replicas with room, and their requests

    def chosen(self, keys: tuple[bytes, ...]) -> int | None:
        """Return the replica for a prompt with these pages, or None if none has room."""
        heap, sent = self._heap, self._sent
        while sent[heap[0][1]] != heap[0][0]:
            heappop(heap)
        least, number = heap[0]
        if least >= self._room:
            return None
        candidates = [Candidate(number, least, self._pages[number].known(keys))]
        holders = self._holders.get(keys[0], set[int]()) if keys else set[int]()
        stale: list[int] = []
        for other in holders:
            if other != number and sent[other] < self._room:
                known = self._pages[other].known(keys)
                candidates.append(Candidate(other, sent[other], known))
                if not known:
                    stale.append(other)
        holders.difference_update(stale)
        return choose(candidates, bound(self._requests, self._able))

    def assign(self, number: int, keys: tuple[bytes, ...]) -> None:
        """Record that a replica gets a request."""
        self._pages[number].learn(keys)
        if keys:
            self._holders[keys[0]].add(number)
        self._change(number, 1)

    def release(self, number: int) -> None:
        """Record that a request of a replica has ended."""
        self._change(number, -1)

    def _change(self, number: int, by: int) -> None:
        before = self._sent[number]
        self._sent[number] = after = before + by
        if before < self._room:
            self._able, self._requests = self._able - 1, self._requests - before
        if after < self._room:
            self._able, self._requests = self._able + 1, self._requests + after
        heappush(self._heap, (self._sent[number], number))


class _Replica:
    """A scheduler, its inbox during a forward pass, and the samples of that pass."""

    __slots__ = ("began", "found", "inbox", "samples", "scripts", "state")

    def __init__(self, first: State) -> None:
        self.state = first
        self.inbox: list[tuple[int, SimulatedRequest]] = []
        self.samples: Samples | None = None
        self.scripts: dict[int, SamplesScript] = {}
        self.began: dict[int, float] = {}
        self.found: dict[int, int] = {}

    def plan(self, now: float) -> Plan:
        """Add new requests and return the next plan, which has no spans if there is nothing to do."""
        for number, job in self.inbox:
            self.state = add(self.state, job.request(number))
            self.scripts[number] = SamplesScript(job, number)
        self.inbox.clear()
        plan = schedule(self.state)
        self.samples = (
            Samples(plan, tuple([self._rows(span, now) for span in plan.spans]), checked=True) if plan.spans else None
        )
        if plan.admissions:
            page_size = self.state.config.page_size
            numbers = {span.seq_id: span.id for span in plan.spans}
            for admission in plan.admissions:
                self.found.setdefault(numbers[admission.seq_id], len(admission.shared) * page_size)
        return plan

    def _rows(self, span: Span, now: float) -> SpanSamples:
        self.began.setdefault(span.id, now)
        return self.scripts[span.id].rows(span)


class Simulation:
    """Equal replicas that share one queue. `delay` seconds are added to every request."""

    def __init__(self, config: Config, strategy: Strategy, cost: StepCost, replicas: int, delay: float = 0.0) -> None:
        if replicas < 1:
            raise ValueError(f"at least 1 replica is needed, got {replicas}")
        first = init(config, strategy)
        self._first, self._cost, self._delay = first, cost, delay
        self._replicas = [_Replica(first) for _ in range(replicas)]
        self._chooser = Chooser(replicas, config.max_num_reqs + AHEAD, config.num_pages)
        self._queue: deque[tuple[int, SimulatedRequest, tuple[bytes, ...]]] = deque()
        self._ends: list[tuple[float, int, int]] = []  # of running passes: end time, global number, replica
        self._forwards = 0
        self._came: dict[int, float] = {}
        self._prompts: dict[int, int] = {}
        self._sums = [0.0, 0.0, 0.0, 0.0]
        self.course = Course(busy=[0.0] * replicas)

    def run(self, jobs: Sequence[SimulatedRequest]) -> Course:
        """Answer all requests, reusing pages of earlier runs. The returned course covers only this run."""
        self.course, self._sums = Course(busy=[0.0] * len(self._replicas)), [0.0, 0.0, 0.0, 0.0]
        for number, job in sorted(enumerate(jobs), key=lambda each: each[1].at):
            while self._ends and self._ends[0][0] <= job.at:
                self._end()
            self._came[number], self._prompts[number] = job.at, len(job.prompt)
            self._queue.append((number, job, page_keys(self._first, job.request(number))))
            self._drain(job.at)
        while self._ends:
            self._end()
        self.course.size = Size(*self._sums)
        return self.course

    def _drain(self, now: float) -> None:
        """Send queued requests to replicas with room, in order."""
        while self._queue:
            number, job, keys = self._queue[0]
            chosen = self._chooser.chosen(keys)
            if chosen is None:
                return
            self._queue.popleft()
            self._chooser.assign(chosen, keys)
            replica = self._replicas[chosen]
            replica.inbox.append((number, job))
            if replica.samples is None:
                self._begin(chosen, now)

    def _begin(self, number: int, now: float) -> None:
        """Start a replica's next forward pass, if there is one."""
        plan = self._replicas[number].plan(now)
        if not plan.spans:
            return
        size = size_of(plan)
        for place, value in enumerate((1.0, size.rows, size.requests, size.context)):
            self._sums[place] += value
        seconds = self._cost.seconds(size)
        self.course.busy[number] += seconds
        self._forwards += 1
        heappush(self._ends, (now + seconds, self._forwards, number))

    def _end(self) -> None:
        """Commit the forward pass that ends next, and continue."""
        now, _, number = heappop(self._ends)
        replica = self._replicas[number]
        assert replica.samples is not None, "a forward pass that ends has samples"
        state = commit(replica.state, replica.samples)
        replica.samples = None
        for request_id in state.ended:
            self._record_end(number, request_id, state, now)
        replica.state = prune(state) if len(state.finished) else state
        self._begin(number, now)
        self._drain(now)

    def _record_end(self, number: int, request_id: int, state: State, now: float) -> None:
        replica, sequence = self._replicas[number], state.finished[request_id]
        del replica.scripts[request_id]
        found = min(replica.found.pop(request_id), self._prompts.pop(request_id))
        came, began = self._came.pop(request_id), replica.began.pop(request_id)
        tokens = len(sequence.answer)
        self.course.fates.append(
            Fate(request_id, number, came, began, now + self._delay, tokens, sequence.accounting.nfe, found)
        )
        self._chooser.release(number)
