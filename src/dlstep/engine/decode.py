"""`Decode`: the one loop under everything that runs a model: calls, streams, sessions, benchmarks, servers."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Protocol, TypeVar, runtime_checkable

from ..core import (
    START_LINE,
    Abort,
    Add,
    Adopt,
    Driver,
    Event,
    Fail,
    HistoryDriver,
    LineMismatch,
    Prune,
    Rebuild,
    Request,
    RequestFault,
    Samples,
    Sequence,
    State,
    Update,
    schedule,
    updates,
)
from ..core.faults import UserCodeTimeout, measured
from ..core.trace import apply
from .watchdog import limited

Result = TypeVar("Result")
USER_CODE_TIMEOUT = 10.0  # seconds
NOBODY_ELSE = nullcontext()


class Leader(HistoryDriver, Protocol):
    """One decode's side of a driver of several ranks: what changes the state is told, so that all ranks plan alike."""

    def hear(self, event: Event) -> None:
        """Let all ranks apply an event before their next plan; samples they have by themselves."""
        ...

    def rewind(self, state: State) -> None:
        """Let all ranks go on from `state`."""
        ...


@runtime_checkable
class RanksDriver(HistoryDriver, Protocol):
    """A driver of several ranks, each of which runs the core: a decode needs a leader of its own there."""

    def lead(self, state: State) -> Leader:
        """The leader of a decode that begins with `state`."""
        ...

    def when_lost(self, call: Callable[[str], None]) -> None:
        """Have `call` told why, in a thread of its own, once a rank is gone."""
        ...


class Decode:
    """A state that moves, and the driver that moves it.

    Every change of the state is an event of the core, told to `record`; folding them from the first state on gives `state`.
    Unless `prunes` is false, requests that have ended are forgotten once a step has told of them. Not safe for threads;
    a step that runs forwards holds `turn`, which several decodes on one driver may share. A method of a strategy or a rule
    that takes longer than `user_code_timeout` seconds counts as failed.
    """

    def __init__(
        self,
        state: State,
        driver: Driver,
        *,
        record: Callable[[Event], None] = lambda event: None,
        prunes: bool = True,
        turn: AbstractContextManager[object] = NOBODY_ELSE,
        user_code_timeout: float = USER_CODE_TIMEOUT,
    ) -> None:
        self._state = self._told = state
        self._leader = driver.lead(state) if isinstance(driver, RanksDriver) else None
        self._led = state  # the state that the leader knows; another one after a rewind, or where an interrupt hid an event
        self._driver, self._record, self._prunes, self._turn = self._leader or driver, record, prunes, turn
        self._forward_failed = False
        self._held_line = state.line  # where this decode left the device last
        self._limit = user_code_timeout

    @property
    def state(self) -> State:
        """The state now."""
        return self._state

    def add(self, request: Request) -> None:
        """Queue `request`; if it could never run, it ends with the next step. Raises ValueError for an id in use."""
        self._enter(Add(request))

    def adopt(self, sequence: Sequence, request_id: int) -> None:
        """Continue an unfinished sequence of another state under a new id. Raises the errors of `core.adopt`."""
        self._enter(Adopt(sequence, request_id))

    def abort(self, request_id: int, reason: str = "") -> None:
        """End a request; nothing happens if it has ended."""
        self._apply(Abort(request_id, reason))

    def fail(self, request_id: int, error: str) -> None:
        """End a request by an error; nothing happens if it has ended."""
        self._apply(Fail(request_id, error))

    def step(self) -> tuple[Update, ...]:
        """Run one forward pass; return what happened to each request since the last step, those that ended first."""
        self.forward()
        found = self.updates()
        self.acknowledge()
        return found

    def forward(self) -> None:
        """Run one forward pass.

        Where the device holds nothing of this state any more, all forwards that it takes to get further than before: each
        step is a gain. If the driver raises, the state is that before the forward, no request is lost, and the next step
        relies on nothing that the device holds. Without a request that runs or waits there is no forward. A request whose
        strategy or rule fails ends by that error; the others go on.
        """
        if not self._state.done:
            with self._turn:
                self._gain()

    def updates(self) -> tuple[Update, ...]:
        """Return what happened to each request since the last `acknowledge`, those that ended first."""
        return updates(self._told, self._state)

    def acknowledge(self) -> None:
        """Let the next `updates` begin here, and forget requests that have ended."""
        if self._prunes and self._state.ended:
            self._apply(Prune())
        self._told = self._state

    def rewind(self, state: State) -> None:
        """Go on from `state`, an earlier or a changed one; no event is recorded."""
        self._state = self._told = state

    def fork(self) -> bool:
        """Let the driver copy what it holds for this state, so that another `Decode` can go on from it, too."""
        return isinstance(self._driver, HistoryDriver) and self._driver.fork(self._state.line)

    def close(self) -> None:
        """Let the driver forget what it holds for this state."""
        if isinstance(self._driver, HistoryDriver) and self._held_line != START_LINE:
            self._driver.release(self._held_line)

    def _enter(self, event: Add | Adopt) -> None:
        """Apply an event; if a strategy or rule does not return in it, apply and record the event with this failure instead."""
        try:
            self._apply(event)
        except RequestFault as fault:
            self._apply(replace(event, failure=str(fault)))

    def _apply(self, event: Event) -> None:
        state = self._without_faulty(lambda: apply(self._state, event))
        follows = self._led is self._state
        self._state = state
        if self._leader is not None and follows:  # otherwise `_gain` sends it the whole state
            self._leader.hear(event)
            self._led = state
        self._record(event)

    def _without_faulty(self, call: Callable[[], Result]) -> Result:
        """Return the result of a core function, after ending each request whose strategy or rule fails in it.

        The function is pure, so it can be called again safely, and each repetition ends a request. Raises the RequestFault of a
        request that has not been added yet.
        """
        while True:
            try:
                return limited(self._limit, call)  # around the core alone: a forward pass may take as long as it does
            except RequestFault as fault:
                if self._state.find(fault.request_id) is None:
                    raise
                self._apply(Fail(fault.request_id, str(fault)))
            except UserCodeTimeout:
                pass  # raised a moment after the call of user code had returned, so no fault: the next turn calls it again

    def _gain(self) -> None:
        if self._leader is not None and (self._forward_failed or self._led is not self._state):
            self._leader.rewind(self._state)  # other ranks may have gone on, or missed an event
            self._led = self._state
        if self._forward_failed:
            self._catch_up()
            return
        try:
            self._forward()
        except LineMismatch:
            self._catch_up()

    def _forward(self) -> None:
        plan = self._without_faulty(lambda: schedule(self._state))
        if not plan.spans:
            return  # the requests that were left failed while they were planned
        if plan.line == START_LINE:
            self.close()  # what a rewound decode left behind, nobody will go on from
        self._forward_failed = True  # until the samples are committed: the device may hold more than the state says
        try:
            samples: Samples = self._driver.run(plan)
        except LineMismatch:
            self._forward_failed = False
            raise
        self._held_line = samples.line
        self._apply(samples)
        self._forward_failed = False

    def _catch_up(self) -> None:
        """Begin a history anew and run until the requests under way are further than they were.

        A single forward may only store what was stored before. Another state that took the place of this one would find the
        same, and neither would ever gain.
        """
        under_way = [sequence.request.arrival for sequence in self._state.running]
        before = self._without_faulty(lambda: self._ahead(under_way))
        self._apply(Rebuild())
        self._forward()
        while under_way and not self._state.done:  # else nothing was lost, or nobody is left to get further
            if self._without_faulty(lambda: self._ahead(under_way)) < before:
                return  # somebody is further than before
            self._forward()

    def _ahead(self, arrivals: list[int]) -> int:
        """How many sampling forwards these requests may still take, by the measure of each one's own strategy."""
        live = [sequence for arrival in arrivals if (sequence := self._state.sequence(arrival)) is not None]
        return sum(measured(sequence, self._state.step) for sequence in live)
