"""One decode on several ranks: rank 0 has the requests and tells what changed; every rank runs the core on it, and its share
of the forward. No plan goes over: equal lines prove before every forward that the ranks agree.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from threading import Lock
from typing import Any
from weakref import finalize

import torch
import torch.distributed as dist

from ..core import DlstepError, Event, HistoryDriver, LineMismatch, Plan, Samples, State, commit, schedule
from ..core.trace import apply
from ..models.ranks import Ranks
from .crew import Crew


class RanksDisagree(DlstepError):
    """Two ranks would have gone on from different histories."""


@dataclass(frozen=True, slots=True)
class Forward:
    """What happened to decode number `decode` since its last forward, and to others; then its next forward.

    A state among the `changes` takes the place of the one before. `released` are lines, `gone` are decodes.
    """

    decode: int
    changes: tuple[Event | State, ...]
    released: tuple[int, ...]
    gone: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Fork:
    """Copy the history on a line."""

    line: int
    released: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class End:
    """No more commands."""


Message = Forward | Fork | End


def tell(message: Message) -> None:
    """Send a message from rank 0 to all others."""
    dist.broadcast_object_list([message], src=0, device=torch.device("cpu"))


def hear() -> Message:
    """The next message of rank 0."""
    heard: list[Any] = [None]
    dist.broadcast_object_list(heard, src=0, device=torch.device("cpu"))
    return heard[0]


def agree(ranks: Ranks, what: str, number: int) -> None:
    """Compare a number of all ranks. Raises RanksDisagree on each of them, with the numbers, unless they are equal."""
    own = torch.tensor([number], dtype=torch.int64)
    every = [torch.empty_like(own) for _ in range(ranks.size)]
    dist.all_gather(every, own)
    numbers = [int(each) for each in every]
    if len(set(numbers)) > 1:
        said = ", ".join(f"rank {rank} has {each}" for rank, each in enumerate(numbers))
        raise RanksDisagree(f"{what}: ranks disagree, {said}; their answers would differ from here on, so all of them stop")


class Conductor:
    """The driver of rank 0. Whatever goes wrong in a forward ends the group: ranks that wait for one another cannot retry."""

    def __init__(self, driver: HistoryDriver, crew: Crew) -> None:
        self._driver, self._crew, self._lock = driver, crew, Lock()
        self._released: deque[int] = deque()
        self._gone: deque[int] = deque()
        self._numbers = count()
        finalize(self, _close, crew)

    def run(self, plan: Plan) -> Samples:
        """Refuse: without its state no other rank knows this plan."""
        raise DlstepError(f"step {plan.step}: a plan runs on several ranks through a Decode only")

    def lead(self, state: State) -> "Baton":
        """The leader of a decode."""
        number = next(self._numbers)
        baton = Baton(self, number, state)
        finalize(baton, self._gone.append, number).atexit = False
        return baton

    def when_lost(self, call: Callable[[str], None]) -> None:
        """Have `call` told why once a rank is gone."""
        self._crew.when_lost(call)

    def fork(self, line: int) -> bool:
        """Copy a history on all ranks."""
        with self._lock:
            try:
                self._crew.check()
                tell(Fork(line, self._forget()))
                forked = self._driver.fork(line)
                agree(self._crew.ranks, f"fork of line {line}", forked)
            except (RuntimeError, DlstepError) as error:
                raise self._crew.ended_by(error) from error
            return forked

    def release(self, line: int) -> None:
        """Forget a history before the next forward."""
        self._released.append(line)

    def forward(self, number: int, changes: tuple[Event | State, ...], plan: Plan) -> Samples:
        """Run a forward of a decode on all ranks."""
        with self._lock:
            try:
                self._crew.check()
                gone = tuple([self._gone.popleft() for _ in range(len(self._gone))])
                tell(Forward(number, changes, self._forget(), gone))
                agree(self._crew.ranks, f"step {plan.step}", plan.line)
                return self._driver.run(plan)
            except LineMismatch:  # on every rank: the next plan begins anew
                raise
            except (RuntimeError, DlstepError) as error:
                raise self._crew.ended_by(error) from error

    def _forget(self) -> tuple[int, ...]:
        lines = tuple([self._released.popleft() for _ in range(len(self._released))])
        for line in lines:
            self._driver.release(line)
        return lines


def _close(crew: Crew) -> None:
    """End a group that nobody can use any more; ranks that torchrun started end by themselves."""
    if crew.lost is None and not crew.pids:
        tell(End())
    crew.end()


class Baton:
    """The leader of one decode: keeps what changed until the next forward."""

    def __init__(self, conductor: Conductor, number: int, state: State) -> None:
        self._conductor, self._number = conductor, number
        self._changes: list[Event | State] = [state]

    def hear(self, event: Event) -> None:
        """Keep an event; samples are known to all ranks."""
        if not isinstance(event, Samples):
            self._changes.append(event)

    def rewind(self, state: State) -> None:
        """Keep a state in place of all that came before."""
        self._changes = [state]

    def run(self, plan: Plan) -> Samples:
        """The samples of a plan of this decode."""
        changes, self._changes = tuple(self._changes), []
        return self._conductor.forward(self._number, changes, plan)

    def fork(self, line: int) -> bool:
        """Copy a history on all ranks."""
        return self._conductor.fork(line)

    def release(self, line: int) -> None:
        """Forget a history before the next forward."""
        self._conductor.release(line)


def follow(driver: HistoryDriver, ranks: Ranks) -> None:
    """Do as rank 0 says, until it ends. Raises RanksDisagree, or RuntimeError once another rank is gone."""
    states: dict[int, State] = {}
    while True:
        match hear():
            case End():
                return
            case Fork(line, released):
                _forget(driver, released)
                agree(ranks, f"fork of line {line}", driver.fork(line))
            case Forward(number, changes, released, gone):
                _forget(driver, released)
                for each in gone:
                    states.pop(each, None)
                for change in changes:
                    states[number] = change if isinstance(change, State) else apply(states[number], change)
                plan = schedule(states[number])
                agree(ranks, f"step {plan.step}", plan.line)
                try:
                    states[number] = commit(states[number], driver.run(plan))
                except LineMismatch:
                    continue  # rank 0 is told the same


def _forget(driver: HistoryDriver, lines: tuple[int, ...]) -> None:
    for line in lines:
        driver.release(line)
