"""Run one decode on several ranks: rank 0 holds the requests and sends changes of the state.

Every rank runs the core on these changes, and its shard of the forward pass. Plans are never sent:
before each forward pass the ranks compare lines (hashes of the history) to prove that they agree.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from threading import Lock
from typing import Protocol, runtime_checkable
from weakref import finalize

from ..core import DlstepError, Event, LineMismatch, Plan, RequestFault, Samples, State, commit, fail, schedule
from ..core.trace import apply
from .crew import Crew
from .interrupts import held_back
from .ranks import Ranks
from .wire import RanksDisagree, Wire, connect


@dataclass(frozen=True, slots=True)
class Forward:
    """The next forward pass of decode number `decode`, after its `changes` since the last one.

    A state in `changes` replaces the current one. `released` are lines, `gone` are ended decodes.
    """

    decode: int
    changes: tuple[Event | State, ...]
    released: tuple[int, ...]
    gone: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Fork:
    """A command to copy the history on a line."""

    line: int
    released: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class End:
    """A command to end: no more commands follow."""


Message = Forward | Fork | End


@runtime_checkable
class RankDriver(Protocol):
    """A driver of histories that lets ranks compare their lines while the device computes."""

    def holds(self, plan: Plan) -> bool:
        """Return whether this driver holds the history that `plan` continues, or `plan` begins a new one."""
        ...

    def run(self, plan: Plan, meanwhile: Callable[[], None]) -> Samples:
        """Return a plan's samples. Call `meanwhile` before returning or raising LineMismatch."""
        ...

    def fork(self, line: int) -> bool:
        """Copy the history on a line. Return False if that is impossible."""
        ...

    def release(self, line: int) -> None:
        """Forget the history on a line."""
        ...

    def drop_graphs(self) -> None:
        """Free all captured graphs."""
        ...


class Conductor:
    """The driver of rank 0. An error in a forward pass ends the group: ranks cannot retry alone."""

    def __init__(self, driver: RankDriver, crew: Crew) -> None:
        self._driver, self._crew, self._lock = driver, crew, Lock()
        self._wire = connect(crew.ranks, crew.check)
        self._released: deque[int] = deque()
        self._gone: deque[int] = deque()
        self._numbers = count()
        crew.before_leaving(driver.drop_graphs)
        finalize(self, _close, crew, self._wire)

    def run(self, plan: Plan) -> Samples:
        """Raise DlstepError: the other ranks cannot know this plan without its state."""
        raise DlstepError(f"step {plan.step}: a plan runs on several ranks through a Decode only")

    def lead(self, state: State) -> "Baton":
        """Return the leader of a new decode that begins with `state`."""
        number = next(self._numbers)
        baton = Baton(self, number, state)
        finalize(baton, self._gone.append, number).atexit = False
        return baton

    def when_lost(self, call: Callable[[str], None]) -> None:
        """Call `call` with the reason once a rank is lost."""
        self._crew.when_lost(call)

    def fork(self, line: int) -> bool:
        """Copy a history on all ranks. Return whether that succeeded."""
        with self._lock, held_back(), self._whole():
            self._wire.tell(Fork(line, self._forget()))
            forked = self._driver.fork(line)
            self._wire.check(f"fork of line {line}", forked)()
            return forked

    def release(self, line: int) -> None:
        """Release a history before the next forward pass."""
        self._released.append(line)

    def forward(self, number: int, changes: tuple[Event | State, ...], plan: Plan) -> Samples:
        """Run a forward pass of decode `number` on all ranks."""
        with self._lock, held_back(), self._whole():
            gone = tuple([self._gone.popleft() for _ in range(len(self._gone))])
            self._wire.tell(Forward(number, changes, self._forget(), gone))
            return _run(self._driver, plan, self._wire)

    def dismiss(self) -> None:
        """Send End to the other ranks."""
        self._wire.tell(End())

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """End the group if the block fails midway. Raises DlstepError if it has already ended."""
        self._crew.check()
        try:
            with self._crew.working():
                yield
        except LineMismatch:  # every rank lost its history: the next plan begins a new one
            raise
        except Exception as error:
            raise self._crew.ended_by(error) from error
        except BaseException as error:
            how = "interrupted twice" if isinstance(error, KeyboardInterrupt) else f"ended by {type(error).__name__}"
            self._crew.ended_by(DlstepError(f"a forward pass of several ranks was {how}: create the LLM again"))
            raise

    def _forget(self) -> tuple[int, ...]:
        lines = tuple([self._released.popleft() for _ in range(len(self._released))])
        for line in lines:
            self._driver.release(line)
        return lines


def _close(crew: Crew, wire: Wire) -> None:
    """End a group that is no longer used. Ranks started by torchrun exit on receiving End."""
    if crew.lost is None and not crew.pids:
        with suppress(RuntimeError, DlstepError):  # a lost rank has already ended
            wire.tell(End())
    crew.end()


class Baton:
    """The leader of one decode. It collects changes until the next forward pass."""

    def __init__(self, conductor: Conductor, number: int, state: State) -> None:
        self._conductor, self._number = conductor, number
        self._changes: list[Event | State] = [state]

    def hear(self, event: Event) -> None:
        """Collect an event, except samples, which all ranks compute."""
        if not isinstance(event, Samples):
            self._changes.append(event)

    def rewind(self, state: State) -> None:
        """Replace all collected changes by a state."""
        self._changes = [state]

    def run(self, plan: Plan) -> Samples:
        """Return the samples of a plan of this decode."""
        changes, self._changes = tuple(self._changes), []
        return self._conductor.forward(self._number, changes, plan)

    def fork(self, line: int) -> bool:
        """Copy a history on all ranks."""
        return self._conductor.fork(line)

    def release(self, line: int) -> None:
        """Release a history before the next forward pass."""
        self._conductor.release(line)


def _committed(state: State, samples: Samples) -> State:
    """Return the state after `samples`; requests whose strategy or rule raises are failed.

    Rank 0 fails the same requests, so its later messages about them change nothing here.
    """
    while True:
        try:
            return commit(state, samples)
        except RequestFault as fault:
            state = fail(state, fault.request_id, str(fault))


def follow(driver: RankDriver, ranks: Ranks) -> None:
    """Execute rank 0's commands until End. Raises RanksDisagree, or RuntimeError if one is lost."""
    states: dict[int, State] = {}
    wire = connect(ranks)
    while True:
        message: Message = wire.hear()
        match message:
            case End():
                return
            case Fork(line, released):
                _forget(driver, released)
                wire.check(f"fork of line {line}", driver.fork(line))()
            case Forward(number, changes, released, gone):
                _forget(driver, released)
                for each in gone:
                    states.pop(each, None)
                for change in changes:
                    states[number] = change if isinstance(change, State) else apply(states[number], change)
                plan = schedule(states[number])
                try:
                    samples = _run(driver, plan, wire)
                except LineMismatch:
                    continue  # rank 0 gets the same error
                states[number] = _committed(states[number], samples)


def _run(driver: RankDriver, plan: Plan, wire: Wire) -> Samples:
    """Run this rank's share of a forward pass.

    Raises LineMismatch if no rank has the history, and RanksDisagree if only some ranks have it.
    """
    held = driver.holds(plan)
    check = wire.check(f"step {plan.step}", plan.line if held else f"no history on line {plan.line}")
    try:
        return driver.run(plan, check)
    except LineMismatch as error:
        if held:  # the other ranks hold the history and continue
            raise RanksDisagree(f"step {plan.step}: rank {wire.ranks.rank} alone lost its history: {error}") from error
        raise


def _forget(driver: RankDriver, lines: tuple[int, ...]) -> None:
    for line in lines:
        driver.release(line)
