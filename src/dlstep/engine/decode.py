"""`Decode`: the loop that runs a model for calls, streams, sessions, benchmarks and servers."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, TypeVar, runtime_checkable

from ..core import (
    EMPTY_CACHE,
    Abort,
    Add,
    Adopt,
    CacheMismatch,
    CachingDriver,
    Driver,
    Event,
    Fail,
    Prepared,
    Prune,
    Rebuild,
    Request,
    RequestFault,
    Samples,
    SamplesMismatch,
    SequenceState,
    State,
    Update,
    commit,
    overlapping,
    prepare,
    schedule,
    updates,
)
from ..core.checks import short
from ..core.errors import run_user_code
from ..core.trace import apply
from ..text.constraints import constrained

Result = TypeVar("Result")
NO_LOCK = nullcontext()


class Leader(CachingDriver, Protocol):
    """One decode's driver on rank 0: it forwards state changes, so that all ranks plan alike."""

    def apply(self, event: Event) -> None:
        """Apply `event` on all ranks before their next plan. Samples are computed on each rank."""
        ...

    def rewind(self, state: State) -> None:
        """Make all ranks continue from `state`."""
        ...


@runtime_checkable
class RanksDriver(CachingDriver, Protocol):
    """A driver of several ranks, each of which runs the core. Each decode needs a leader."""

    def lead(self, state: State) -> Leader:
        """Return the leader of a decode that begins with `state`."""
        ...

    def when_lost(self, call: Callable[[str], None]) -> None:
        """Call `call` with the reason, in a separate thread, once a rank is lost."""
        ...


class Decode:
    """The loop that advances a state with a driver.

    Every change of the state is an event of the core, passed to `record`; applying the events in
    order to the first state yields `state`. Unless `prunes` is False, ended requests are forgotten
    once a step has reported them. A forward pass holds `turn`, which decodes on the same driver may
    share. Not thread-safe.
    """

    def __init__(
        self,
        state: State,
        driver: Driver,
        *,
        record: Callable[[Event], None] = lambda event: None,
        prunes: bool = True,
        turn: AbstractContextManager[object] = NO_LOCK,
    ) -> None:
        self._state = self._reported = state
        self._leader = driver.lead(state) if isinstance(driver, RanksDriver) else None
        self._leader_state = state  # differs from `_state` after a rewind or a lost event
        self._driver, self._record, self._prunes, self._turn = self._leader or driver, record, prunes, turn
        self._overlapping = overlapping(self._driver)
        self._forward_failed = False
        self._held_digest = state.cache_digest  # of the device's cache after this decode's last run

    @property
    def state(self) -> State:
        """Return the current state."""
        return self._state

    def add(self, request: Request) -> None:
        """Queue `request`; one that can never run ends next step.

        Compiles its constraint, unless it was compiled before. Raises ValueError if the id is in use,
        or if the constraint is invalid.
        """
        self._apply(Add(constrained(request, self._state.config.spec)))

    def adopt(self, sequence: SequenceState, request_id: int) -> None:
        """Continue an unfinished sequence of another state under a new id. Raises the errors of `core.adopt`."""
        self._apply(Adopt(sequence, request_id))

    def abort(self, request_id: int, reason: str = "") -> None:
        """End a request. Do nothing if it has ended."""
        self._apply(Abort(request_id, reason))

    def fail(self, request_id: int, error: str) -> None:
        """End a request with an error. Do nothing if it has ended."""
        self._apply(Fail(request_id, error))

    def step(self) -> tuple[Update, ...]:
        """Run one forward pass. Return the updates since the last step, ended requests first."""
        self.forward()
        changed = self.updates()
        self.acknowledge()
        return changed

    def forward(self) -> None:
        """Run one forward pass, or none if no request is live.

        If the device no longer holds this state's cache, run as many forward passes as it takes to
        rebuild the cache and advance further than before. If the driver raises, the state stays as
        it was before the forward pass, no request is lost, and the next call rebuilds the cache. A
        request whose strategy or rule fails ends with that error; the others continue.
        """
        if not self._state.done:
            with self._turn:
                self._advance()

    def updates(self) -> tuple[Update, ...]:
        """Return each request's change since the last `acknowledge`, ended requests first."""
        return updates(self._reported, self._state)

    def acknowledge(self) -> None:
        """Mark all updates as delivered, and forget requests that have ended."""
        if self._prunes and self._state.ended:
            self._apply(Prune())
        self._reported = self._state

    def rewind(self, state: State) -> None:
        """Continue from `state`, an earlier or a modified one. No event is recorded."""
        self._state = self._reported = state

    def fork(self) -> bool:
        """Ask the driver to copy this state's cache for another `Decode`; return whether it did."""
        return isinstance(self._driver, CachingDriver) and self._driver.fork(self._state.cache_digest)

    def close(self) -> None:
        """Release the driver's cache of this state."""
        if isinstance(self._driver, CachingDriver) and self._held_digest != EMPTY_CACHE:
            self._driver.release(self._held_digest)

    def _apply(self, event: Event, prepared: Prepared | None = None) -> None:
        def applied() -> State:
            return commit(self._state, event, prepared) if isinstance(event, Samples) else apply(self._state, event)

        state = self._without_faulty(applied)
        follows = self._leader_state is self._state
        self._state = state
        if self._leader is not None and follows:  # otherwise `_advance` sends it the whole state
            self._leader.apply(event)
            self._leader_state = state
        self._record(event)

    def _without_faulty(self, call: Callable[[], Result]) -> Result:
        """Return the result of a core function, after ending each request whose strategy or rule fails in it.

        Calling the function again is safe because it is pure, and each repetition ends one request.
        """
        while True:
            try:
                return call()
            except RequestFault as fault:
                self._apply(Fail(fault.request_id, str(fault)))

    def _advance(self) -> None:
        if self._leader is not None and (self._forward_failed or self._leader_state is not self._state):
            self._leader.rewind(self._state)  # other ranks may be ahead, or have missed an event
            self._leader_state = self._state
        if self._forward_failed:
            self._catch_up()
            return
        try:
            self._forward()
        except CacheMismatch:
            self._catch_up()

    def _forward(self) -> None:
        plan = self._without_faulty(lambda: schedule(self._state))
        if not plan.spans:
            return  # all remaining requests failed during planning
        if plan.cache_digest == EMPTY_CACHE:
            self.close()  # free the cache from before a rewind: no state refers to it
        self._forward_failed = True  # until `_apply`, the device may be ahead of the state
        try:
            pending = self._overlapping.start(plan)
            prepared = prepare(self._state, plan)
            samples = pending.wait()
        except CacheMismatch:
            self._forward_failed = False
            raise
        if type(samples) is not Samples or (samples.plan is not plan and samples.plan != plan):
            raise SamplesMismatch(f"the driver returned {short(samples)} instead of the Samples of its plan")
        self._held_digest = samples.cache_digest
        self._apply(samples, prepared)
        self._forward_failed = False

    def _catch_up(self) -> None:
        """Rebuild the cache and run until the running requests have advanced further than before.

        One forward pass might only restore the cache: two states could evict each other forever.
        """
        running = [sequence.request.seq_id for sequence in self._state.running]
        before = self._without_faulty(lambda: self._passes_left(running))
        self._apply(Rebuild())
        self._forward()
        while running and not self._state.done:  # else nothing was lost, or no request is left
            if self._without_faulty(lambda: self._passes_left(running)) < before:
                return  # some request has advanced
            self._forward()

    def _passes_left(self, seq_ids: list[int]) -> int:
        """Return an upper bound on the sampling forward passes left, by the strategies' `measure`."""
        live = [sequence for seq_id in seq_ids if (sequence := self._state.sequence(seq_id)) is not None]
        measures = [(sequence, sequence.request_spec.strategy.measure) for sequence in live]
        return sum(run_user_code(sequence, self._state.step, measure, sequence) for sequence, measure in measures)
