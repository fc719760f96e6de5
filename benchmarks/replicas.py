"""Simulate replicas of a server in virtual time, and search for the fewest that meet a latency target.

Each replica is the real scheduler, with the pages and the prefix cache of a server; requests are placed as in
`dlstep serve --replicas`. Samples are scripted: answers have given lengths and numbers of forward passes, and
a forward pass takes a given time, plus a time for each of its rows. The defaults are those of the embedded
model. `--target p95=0.5` tries 1, 2, 4, ... replicas under one load, then bisects.
"""

import json
import sys
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from dlstep import core
from dlstep.serve.router.placement import Candidate, Pages, bound, choose, page_keys
from dlstep.strategies import load

from . import entry

AHEAD = 8  # requests that a replica holds beyond those that it decodes, as in `dlstep serve`
MASK, EOS, WORD = 0, 1, 2  # ids of the mask, the end of an answer, and all its tokens; prompts use later ids
SPEC = core.Spec(MASK, (EOS,), (1 << 31) - 1)
SHARED_IDS = 1 << 30  # first id of shared prompt prefixes
SURE, UNSURE = 1.0, 0.25
REACH = 1.5  # fitted to the rows per forward pass of the embedded models: tests/unit/benchmarks/test_replicas.py
BUDGETS = '{"page_size": 8, "num_pages": 8192, "max_model_len": 512, "max_num_batched_tokens": 4096, "max_num_reqs": 128}'
PERCENTILES = ("p50", "p95", "p99")
COLUMNS = ("replicas", "requests", "tokens_per_s", "latency_p50", "latency_p95", "latency_p99", "queue_p95", "hit_rate", "busy")


@dataclass(frozen=True, slots=True)
class MeasuredAnswer:
    """A measured answer: tokens of its prompt, its own, and the forward passes that sampled or stored it."""

    prompt: int
    tokens: int
    forwards: int


USUAL = tuple([MeasuredAnswer(64, 32 + 4 * place, 14 + place % 5) for place in range(8)])


@dataclass(frozen=True, slots=True)
class Job:
    """A request: arrival, prompt, and the course of its answer. `limit` is its `max_tokens`."""

    at: float
    prompt: tuple[int, ...]
    tokens: int
    forwards: int
    limit: int

    def request(self, number: int) -> core.Request:
        """Return the request for a scheduler. The seed has no effect because samples are scripted."""
        return core.Request(number, self.prompt, core.SamplingParams(max_tokens=self.limit, seed=0))


@dataclass(frozen=True, slots=True)
class Traffic:
    """Requests whose answers are drawn from measured ones.

    Prompts begin with one of `prefixes` texts of `prefix_tokens` tokens, the k-th with a frequency of 1/k**`zipf`.
    """

    answers: tuple[MeasuredAnswer, ...] = USUAL
    limit: int = 64
    seed: int = 0
    prefixes: int = 0
    prefix_tokens: int = 0
    zipf: float = 1.0

    def jobs(self, count: int, rate: float) -> list[Job]:
        """Return `count` requests, which arrive at random, `rate` a second."""
        random, arrivals, now = Random(f"{self.seed} answers"), Random(self.seed), 0.0
        weights = list(accumulate(1 / k**self.zipf for k in range(1, self.prefixes + 1)))
        jobs: list[Job] = []
        for number, answer in enumerate(random.choices(self.answers, k=count)):
            now += arrivals.expovariate(rate)
            prompt = (WORD + 1 + number,) * answer.prompt
            if weights:
                (which,) = random.choices(range(self.prefixes), cum_weights=weights)
                prompt = (SHARED_IDS + which,) * self.prefix_tokens + prompt
            jobs.append(Job(now, prompt, answer.tokens, answer.forwards, max(self.limit, answer.tokens, 1)))
        return jobs


def scripted_strategy(name: str, options: Mapping[str, Any]) -> core.Strategy:
    """Return a strategy that unmasks only the positions that a script is sure of."""
    kind = load(name)
    calm = {"semi_complete_threshold": 1.0} if "semi_complete_threshold" in kind.__dataclass_fields__ else {}
    return kind(**{**options, **calm})


class SamplesScript:
    """Scripted samples of a request.

    The answer ends after `Job.forwards` forward passes if the window of the strategy allows it. Forward passes
    that only store KV entries count as well. The remaining positions are spread evenly over the remaining
    passes. While the window ends before the answer, one forward pass is reserved for each window to come.

    With n sure positions in a forward pass, the first sampled position is sure, and the others are drawn from
    the first `REACH` * n. Models unmask roughly from left to right; draws from the whole window would leave
    early blocks open, which takes more forward passes and rows.
    """

    def __init__(self, job: Job, seed: int) -> None:
        self._job, self._random = job, Random(seed)
        self._end = len(job.prompt) + job.tokens
        self._due = job.tokens + (job.tokens < job.limit)  # positions to unmask, including the end of the answer
        self._forwards = self._widest = 0

    def rows(self, span: core.Span) -> core.SpanSamples:
        """Return the samples of a span of the request."""
        self._forwards += 1
        if not span.wanted.sampled:
            return core.NO_SAMPLES
        count = len(span.wanted.sampled)
        words = bisect_left(span.wanted.sampled, self._end)
        useful = min(count, words + 1)
        self._widest = max(self._widest, count)
        sure = self._sure(useful)
        self._due -= sure
        probabilities = [UNSURE] * count
        probabilities[0] = SURE
        near = min(useful, int(REACH * sure))
        for place in self._random.sample(range(1, near), sure - 1) if sure > 1 else ():
            probabilities[place] = SURE
        return core.SpanSamples((WORD,) * words + (EOS,) * (count - words), tuple(probabilities))

    def _sure(self, useful: int) -> int:
        """Return how many of the `useful` sampled positions this forward pass unmasks."""
        due, left = max(1, self._due), max(1, self._job.forwards - self._forwards + 1)
        if due > useful:  # the rest lies beyond the window
            later = -(-(due - useful) // self._widest)
            left, due = max(1, min(left - later, round(left * useful / due))), useful
        return min(useful, -(-due // left))


@dataclass(frozen=True, slots=True)
class Fate:
    """The course of a request: times in seconds, tokens emitted, and prompt tokens found in pages."""

    number: int
    came: float
    began: float
    ended: float
    tokens: int
    forwards: int
    found: int


@dataclass(slots=True)
class Replica:
    """A scheduler, its inbox during a forward pass, and the samples of that pass."""

    state: core.State
    pages: Pages
    sent: int = 0  # requests that it holds
    busy: float = 0.0  # seconds of forward passes
    inbox: list[tuple[int, Job]] = field(default_factory=list)
    samples: core.Samples | None = None
    scripts: dict[int, SamplesScript] = field(default_factory=dict)
    began: dict[int, float] = field(default_factory=dict)
    found: dict[int, int] = field(default_factory=dict)

    def plan(self, now: float) -> core.Plan:
        """Add new requests and return the next plan, which has no spans if there is nothing to do."""
        for number, job in self.inbox:
            self.state = core.add(self.state, job.request(number))
            self.scripts[number] = SamplesScript(job, number)
        self.inbox.clear()
        plan = core.schedule(self.state)
        if plan.spans:
            self.samples = core.Samples(
                plan, tuple([self.scripts[span.who.id].rows(span) for span in plan.spans]), checked=True
            )
        numbers = {span.who.seq_id: span.who.id for span in plan.spans}
        for number in numbers.values():
            self.began.setdefault(number, now)
        for admission in plan.admissions:
            self.found.setdefault(numbers[admission.seq_id], len(admission.shared) * self.state.config.page_size)
        return plan


class Simulation:
    """Equal replicas that share one queue.

    A forward pass takes `forward` seconds and `row` more for each row; a request takes `delay` seconds more.
    `fates` are in order of completion; `forwards` and `rows` are sums over all replicas.
    """

    def __init__(
        self, config: core.Config, strategy: core.Strategy, replicas: int, forward: float, row: float = 0.0, delay: float = 0.0
    ) -> None:
        self._first, self._forward, self._row, self._delay = core.init(config, strategy), forward, row, delay
        self._room = config.max_num_reqs + AHEAD
        self.replicas = [Replica(self._first, Pages(config.num_pages)) for _ in range(replicas)]
        self._queue: deque[tuple[int, Job, tuple[bytes, ...]]] = deque()
        self._ends: list[tuple[float, int, int]] = []  # of running passes: end time, number of the pass, replica
        self._jobs: dict[int, Job] = {}
        self.fates: list[Fate] = []
        self.forwards = self.rows = 0

    def run(self, jobs: Sequence[Job]) -> "Simulation":
        """Answer all requests, and return self."""
        for number, job in sorted(enumerate(jobs), key=lambda each: each[1].at):
            while self._ends and self._ends[0][0] <= job.at:
                self._end()
            self._jobs[number] = job
            self._queue.append((number, job, page_keys(self._first, job.request(number))))
            self._drain(job.at)
        while self._ends:
            self._end()
        return self

    def _drain(self, now: float) -> None:
        """Send queued requests to replicas with room, in order."""
        while self._queue:
            number, job, keys = self._queue[0]
            able = [
                Candidate(place, replica.sent, replica.pages.known(keys))
                for place, replica in enumerate(self.replicas)
                if replica.sent < self._room
            ]
            if not able:
                return
            chosen = choose(able, bound(sum(each.requests for each in able), len(able)))
            self._queue.popleft()
            replica = self.replicas[chosen]
            replica.pages.learn(keys)
            replica.sent += 1
            replica.inbox.append((number, job))
            if replica.samples is None:
                self._begin(chosen, now)

    def _begin(self, place: int, now: float) -> None:
        """Start a replica's next forward pass, if there is one."""
        replica = self.replicas[place]
        plan = replica.plan(now)
        if not plan.spans:
            return
        rows = sum(len(span.rows.tokens) for span in plan.spans)
        seconds = self._forward + self._row * rows
        self.forwards, self.rows = self.forwards + 1, self.rows + rows
        replica.busy += seconds
        heappush(self._ends, (now + seconds, self.forwards, place))

    def _end(self) -> None:
        """Commit the forward pass that ends next, and continue."""
        now, _, place = heappop(self._ends)
        replica = self.replicas[place]
        assert replica.samples is not None, "a forward pass that ends has samples"
        state = core.commit(replica.state, replica.samples)
        replica.samples = None
        for number in state.ended:
            self.fates.append(self._fate(place, number, state, now))
        replica.state = core.prune(state) if len(state.finished) else state
        self._begin(place, now)
        self._drain(now)

    def _fate(self, place: int, number: int, state: core.State, now: float) -> Fate:
        replica, sequence, job = self.replicas[place], state.finished[number], self._jobs.pop(number)
        replica.sent -= 1
        del replica.scripts[number]
        began, found = replica.began.pop(number), min(replica.found.pop(number), len(job.prompt))
        tokens, forwards = len(sequence.answer), sequence.nfe
        return Fate(number, job.at, began, now + self._delay, tokens, forwards, found)


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of a simulation.

    Latencies are milliseconds from arrival to the whole answer, `queue_p95` to the first pass. `hit_rate` is the
    share of prompt tokens found in pages, `busy` the share of time in which replicas ran forward passes. Times
    span from the first arrival to the end of the last answer.
    """

    replicas: int
    requests: int
    tokens_per_s: float
    latency_p50: float
    latency_p95: float
    latency_p99: float
    queue_p95: float
    tokens_per_forward: float
    rows_per_forward: float
    hit_rate: float
    busy: float


def figures(jobs: Sequence[Job], done: Simulation) -> Figures:
    """Return the figures of a simulation that has answered `jobs`."""
    fates, busy = done.fates, [replica.busy for replica in done.replicas]
    span = (max(fate.ended for fate in fates) - min(fate.came for fate in fates)) or 1.0
    tokens = sum(fate.tokens for fate in fates)
    latencies = np.percentile([1e3 * (fate.ended - fate.came) for fate in fates], (50, 95, 99)).tolist()
    return Figures(
        len(busy), len(fates), tokens / span, *latencies,
        queue_p95=float(np.percentile([1e3 * (fate.began - fate.came) for fate in fates], 95)),
        tokens_per_forward=tokens / sum(fate.forwards for fate in fates),
        rows_per_forward=done.rows / done.forwards,
        hit_rate=sum(fate.found for fate in fates) / sum(len(job.prompt) for job in jobs),
        busy=sum(busy) / (span * len(busy)),
    )  # fmt: skip


def target_of(text: str) -> tuple[str, float]:
    """Parse a target such as `p95=0.5`: a percentile of latency, and seconds. Raises ValueError for anything else."""
    name, _, value = text.partition("=")
    if name not in PERCENTILES:
        raise ValueError(f"--target takes seconds for {', '.join(PERCENTILES)}, such as p95=0.5, got {text!r}")
    return name, float(value)


def meets(row: Figures, target: tuple[str, float]) -> bool:
    """Return whether the latency of a row is within the target."""
    name, seconds = target
    return getattr(row, f"latency_{name}") <= 1e3 * seconds


def sized(figures_of: Callable[[int], Figures], target: tuple[str, float], most: int) -> Iterator[Figures]:
    """Yield the figures of each number of replicas tried: doubled until the target is met, then bisected.

    The answer is the smallest number tried that meets the target; the number below it was also tried and fails.
    If even `most` replicas fail, their figures come last and there is no answer.
    """
    enough, short = 1, 0
    while not meets(row := figures_of(enough), target):
        yield row
        if enough == most:
            return
        enough, short = min(2 * enough, most), enough
    yield row
    while enough - short > 1:
        middle = (short + enough) // 2
        yield (row := figures_of(middle))
        enough, short = (middle, short) if meets(row, target) else (enough, middle)


def simulate(
    *, replicas: tuple[int, ...], target: str, most_replicas: int, rate: float, requests: int, fewest: int, max_tokens: int,
    answers: str, prefixes: int, prefix_tokens: int, zipf: float, seed: int, forward_ms: float, row_us: float,
    delay_ms: float, decoding_strategy: str, options: str, budgets: str,
) -> Iterator[Figures]:  # fmt: skip
    """Yield a row for each number of replicas. With a target, report the answer of the search on stderr."""
    drawn = tuple([MeasuredAnswer(*each) for each in json.loads(Path(answers).read_text("utf-8"))]) if answers else USUAL
    traffic = Traffic(drawn, max_tokens, seed, prefixes, prefix_tokens, zipf)
    times = 1e-3 * forward_ms, 1e-6 * row_us, 1e-3 * delay_ms
    config, strategy = core.Config(SPEC, **json.loads(budgets)), scripted_strategy(decoding_strategy, json.loads(options))

    def figures_of(count: int, jobs: Sequence[Job]) -> Figures:
        return figures(jobs, Simulation(config, strategy, count, *times).run(jobs))

    if not target:
        for count in replicas:
            yield figures_of(count, traffic.jobs(max(fewest, requests * count), rate * count))
        return
    bound, jobs = target_of(target), traffic.jobs(fewest, rate)
    best: int | None = None
    for row in sized(lambda count: figures_of(count, jobs), bound, most_replicas):
        best = min(row.replicas, best or row.replicas) if meets(row, bound) else best
        yield row
    found = f"{best} replicas are the fewest that reach" if best else f"no number of replicas up to {most_replicas} reaches"
    print(f"{found} {target} s with {rate:g} requests a second ({fewest} in all)", file=sys.stderr)


if __name__ == "__main__":
    entry.run(
        __doc__, simulate, COLUMNS,
        replicas=((1, 2, 5, 10, 20, 50, 100), "Numbers of replicas, a row for each."),
        target=("", "Search for the fewest replicas with this latency in seconds: p50, p95 or p99, such as p95=0.5."),
        most_replicas=(100, "With --target: the most replicas to try."),
        rate=(4.0, "Requests a second for each replica; with --target, for all together."),
        requests=(20, "Requests for each replica of a row."),
        fewest=(1000, "Fewest requests of a row, and their number with --target."),
        max_tokens=(64, "`max_tokens` of each request."),
        answers=("", "JSON file with a list of [prompt tokens, answer tokens, forward passes]."),
        prefixes=(0, "Prompts begin with one of so many texts; 0: they share nothing."),
        prefix_tokens=(0, "Tokens of each such text."),
        zipf=(1.0, "The k-th text is 1/k**zipf times as frequent as the first."),
        seed=(0, "Seed of arrivals and answers."),
        forward_ms=(5.0, "Milliseconds of a forward pass."),
        row_us=(20.0, "Microseconds of each row that it feeds."),
        delay_ms=(0.0, "Milliseconds that a request takes outside of the engine."),
        decoding_strategy=("multi_bd", "A strategy whose rule unmasks sure positions."),
        options=('{"block_size": 8, "buffer_size": 4}', "Its options, as JSON."),
        budgets=(BUDGETS, "Those of the engine, as JSON."),
    )  # fmt: skip
