"""A harness that runs a case on a device and records every step for the laws."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ..core import (
    Abort,
    Add,
    Config,
    Driver,
    Plan,
    Rebuild,
    Request,
    Samples,
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
from ..core.lifecycle import apply
from ..engine.overrides import forked
from .generators import Case, ample, due
from .shadow import ShadowDriver

MOST_STEPS = 5000


@dataclass(frozen=True, slots=True)
class Step:
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
    trace: Trace = field(init=False)
    state: State = field(init=False)

    def __post_init__(self) -> None:
        self.state, self.trace, self._forks = self.first, Trace(self.first), list(self.case.forks)

    def _event(self, event: Add | Abort | Rebuild) -> None:
        self.trace = self.trace.extended(event)
        self.state = apply(self.state, event)

    def _is_within(self) -> bool:
        """Return whether a block is unmasked in part."""
        blocks = [block for sequence in self.state.running for block in sequence.window]
        return any(0 < len(block.masked) < len(block.tokens) - block.given.bit_count() for block in blocks)

    def _fork(self, changes: dict[str, Any]) -> None:
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


Outcome = tuple[tuple[int, ...], str | None, tuple[float, ...]]


def outcome(sequence: SequenceState) -> Outcome:
    """Return answer, finish reason and probabilities of a finished request."""
    return sequence.answer, sequence.finish, sequence.probabilities


def outcomes(state: State) -> dict[int, Outcome]:
    """Return the outcome of every finished request."""
    return {key: outcome(sequence) for key, sequence in state.finished.items()}
