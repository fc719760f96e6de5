"""A harness that runs a case on a device and records every step for the laws, and checks of these records."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ..core import (
    Abort,
    Add,
    Config,
    Driver,
    Ids,
    Json,
    Plan,
    Probabilities,
    Rebuild,
    Request,
    Samples,
    SamplingParams,
    SequenceState,
    Span,
    Spec,
    State,
    Strategy,
    Trace,
    commit,
    init,
    schedule,
    with_options,
)
from ..core.lifecycle import answer_limit, apply
from ..engine.overrides import forked
from .generators import Case, ample, due
from .shadow import ShadowDriver

MOST_STEPS = 5000


class Step(NamedTuple):
    """One forward pass: the states around `schedule` and `commit`, the plan and its samples."""

    planned: State
    plan: Plan
    samples: Samples
    before: State
    after: State

    def served(self) -> Iterator[tuple[Span, SequenceState, SequenceState]]:
        """Yield each span with its sequence before and after `commit`."""
        for span in self.plan.spans:
            before, after = self.before.find(span.who.id), self.after.find(span.who.id)
            assert before is not None and after is not None
            yield span, before, after

    def planned_spans(self) -> Iterator[tuple[Span, SequenceState]]:
        """Yield each span with the sequence that it was planned for."""
        for span in self.plan.spans:
            sequence = self.planned.find(span.who.id)
            assert sequence is not None
            yield span, sequence


@dataclass
class CaseRun:
    """The record of a case, oldest step first."""

    case: Case
    first: State
    driver: Driver
    steps: list[Step] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.state, self.trace, self._forks = self.first, Trace(self.first), list(self.case.forks)

    def _event(self, event: Add | Abort | Rebuild) -> None:
        self.trace = self.trace.extended(event)
        self.state = apply(self.state, event)

    def _is_within(self) -> bool:
        """Return whether a block is unmasked in part."""
        blocks = [block for sequence in self.state.running for block in sequence.progress.window]
        return any(0 < len(block.masked) < len(block.tokens) - block.given.bit_count() for block in blocks)

    def _fork(self, changes: Json) -> None:
        """Continue with changed options, as the fork of a session does, unless blocks do not allow it."""
        try:
            self.state = forked(self.state, with_options(self.state.strategy, changes), changes)
        except ValueError:
            assert changes, "a fork without changes is refused"
        else:
            self.trace = Trace(self.state)
            if isinstance(self.driver, ShadowDriver):
                self.driver.exact = self.state.strategy.exact

    def enter(self, number: int) -> None:
        """Apply the arrivals, aborts, forks and rebuilds before step `number`."""
        for request in self.case.arriving(number):
            self._event(Add(request))
        for request_id in due(self.case.aborts, number):
            self._event(Abort(request_id))
        forks = [fork for fork in self._forks if fork[0] <= number and (self._is_within() or not self.case.within)]
        for fork in forks:
            self._forks.remove(fork)
            self._fork(fork[1])
        if number in self.case.rebuilds:
            self._event(Rebuild())

    def forward(self, number: int) -> None:
        """Schedule, apply late aborts, run and commit."""
        planned = self.state
        plan = schedule(planned)
        for request_id in due(self.case.late_aborts, number):
            self._event(Abort(request_id))
        before = self.state
        samples = self.driver.run(plan)
        self.state = commit(before, samples)
        self.trace = self.trace.extended(samples)
        self.steps.append(Step(planned, plan, samples, before, self.state))


def shadow(config: Config, strategy: Strategy, *, places: int = 1, blind: float = 0.0) -> ShadowDriver:
    """Return a shadow device of the right size, strict if the strategy is exact."""
    return ShadowDriver(config.page_size, config.num_pages, config.spec, exact=strategy.exact, places=places, blind=blind)


def run_case(case: Case, driver: Driver | None = None, watch: Callable[[CaseRun], None] = lambda run: None) -> CaseRun:
    """Run `case` to its end, calling `watch` after each step. Raises AssertionError if endless."""
    run = CaseRun(case, init(case.config, case.strategy), driver or shadow(case.config, case.strategy))
    last = max((*case.arrive, *(step for step, _ in case.aborts)), default=0)
    for number in range(MOST_STEPS):
        run.enter(number)
        if run.state.done and number >= last:
            return run
        run.forward(number)
        watch(run)
    raise AssertionError(f"not finished after {MOST_STEPS} steps")


def alone(spec: Spec, strategy: Strategy, request: Request, *, blind: float = 0.0) -> CaseRun:
    """Run `request` alone on an engine with ample resources."""
    config = ample(spec)
    return run_case(Case(config, strategy, (request,), (0,)), shadow(config, strategy, blind=blind))


def answered_alone(spec: Spec, strategy: Strategy, request: Request, *, blind: float = 0.0) -> SequenceState:
    """Return the finished sequence of `request`, run alone on an engine with ample resources."""
    return alone(spec, strategy, request, blind=blind).state.finished[request.id]


def disturbed(run: CaseRun) -> set[int]:
    """Return the ids that were preempted: only exact strategies answer these unchanged."""
    ids = {sequence.request.seq_id: sequence.request.id for step in run.steps for sequence in step.planned.running}
    return {ids[seq_id] for step in run.steps for seq_id in step.plan.preemptions}


Outcome = tuple[Ids, str | None, Probabilities, int]


def outcome(sequence: SequenceState) -> Outcome:
    """Return answer, finish reason, probabilities and number of sampling passes of a finished request."""
    return sequence.answer, sequence.finish, sequence.probabilities, sequence.steps


def outcomes(state: State) -> dict[int, Outcome]:
    """Return the outcome of every finished request."""
    return {key: outcome(sequence) for key, sequence in state.finished.items()}


def check_ownership(state: State) -> None:
    """Check that each page is owned by the tables that hold it, or cached, or free, and that ids find their requests.

    Only running requests hold pages, each page once.
    """
    cache = state.cache
    held = Counter(page for sequence in state.running for page in sequence.pages)
    assert held == dict(cache.owners.items()), "owners differ from tables"
    unowned = [*cache.free, *cache.cached, *range(cache.fresh, cache.num_pages)]
    assert sorted((*held, *unowned)) == list(range(cache.num_pages)), "a page is lost or held twice"
    assert cache.available == len(unowned)
    slots = [*cache.slots, *(s.storage.slot for s in state.running if s.storage.slot is not None)]
    assert sorted(slots) == list(range(state.config.max_num_reqs if state.strategy.carries else 0)), "a carry slot is lost"
    assert set(cache.cached) == {page for page in cache.keys if page not in held}
    assert {key: page for page, key in cache.keys.items()} == dict(cache.index.items())
    for sequence in state.running:
        assert len(set(sequence.pages)) == len(sequence.pages), "a page twice in a table"
        assert sequence.storage.stored <= sequence.progress.final
    live = {sequence.request.id: sequence.request.seq_id for sequence in (*state.running, *state.waiting)}
    assert dict(state.live.items()) == live, "an id does not find its request"
    assert sorted(state.ended) == sorted(state.finished), "the finished requests are not those that ended"
    assert len(state.waiting) == len(list(state.waiting))
    for sequence in (*state.waiting, *state.finished.values()):
        holds = sequence.pages or sequence.storage.stored or sequence.storage.slot is not None
        assert not holds, "a sequence that does not run holds pages"


def check_device(state: State, device: ShadowDriver) -> None:
    """Check that the device last ran a plan of `state`, with the right tokens in its pages."""
    for sequence in state.running:
        seq_id, tokens = sequence.request.seq_id, sequence.tokens(0, sequence.storage.stored)
        assert device.now.tables[seq_id] == list(sequence.pages), "the device has other pages for the request"
        for position, token in enumerate(tokens):
            held = device.now.slots[device.slot(seq_id, position)]
            right = held.is_final(tokens) and (held.position, held.token) == (position, token)
            assert right, f"{held} is stored, not {token}"


def check_answer(state: State, request: Request) -> None:
    """Check that the answer of a finished request agrees with its finish reason."""
    sequence = state.finished[request.id]
    spec, answer = state.config.spec, sequence.answer
    limit = answer_limit(request, state.config) - request.start
    assert sequence.request.prompt == request.prompt and spec.mask_id not in answer
    assert len(answer) <= max(limit, 0) and len(sequence.probabilities) == len(answer)
    assert sequence.nfe >= sequence.steps
    if sequence.finish == "rejected":
        assert not answer and sequence.error
        return
    length = request.start
    assert sequence.tokens(0, length) == request.prompt
    assert not set(answer) & set(sequence.request.stop_ids), "an answer holds a stop id"
    _check_reason(sequence, request.params, spec, limit)


def _check_reason(sequence: SequenceState, params: SamplingParams, spec: Spec, limit: int) -> None:
    """Check that the answer, of at most `limit` tokens, ends as its reason requires."""
    answer = sequence.answer
    text = b"".join(spec.pieces[token] for token in answer)
    stopped = any(stop.encode() in text for stop in params.stop)
    if (bound := params.max_repetition_run) is not None:
        runs = (answer[end - bound : end] for end in range(bound, len(answer)))
        assert all(len(set(run)) > 1 for run in runs), "the answer goes on after a run of equal tokens"
    match sequence.finish:
        case "stop":
            end = sequence.request.start + len(answer)
            closed = not sequence.progress.window and sequence.progress.settled == end  # by the strategy
            assert stopped or closed or sequence.tokens(end, end + 1)[0] in sequence.request.stop_ids
        case "length":
            assert len(answer) == limit and not stopped
        case "nfe_limit":
            assert sequence.steps == params.max_nfe and len(answer) < limit and not stopped
        case "repetition":
            run = params.max_repetition_run
            assert run is not None and len(set(answer[-run:])) == 1 and len(answer) >= run
        case reason:
            assert reason == "abort"
