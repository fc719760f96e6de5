"""The one effect of a decode: a driver answers a plan. Everything around it is a pure function of the core."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from .plan import Plan, Samples
from .state import State
from .trace import Event


class Driver(Protocol):
    """A device that runs plans. It owns weights, and the bytes of keys and values; the core owns their names."""

    def run(self, plan: Plan) -> Samples:
        """The samples of `plan`. Raises LineMismatch for a plan that relies on a history which the device does not hold."""
        ...


@runtime_checkable
class HistoryDriver(Driver, Protocol):
    """A driver that holds histories and takes hints about them; none changes an answer, all save work or memory."""

    def fork(self, line: int) -> bool:
        """Copy the history that is on `line`, so that two states can go on from it; False if there is none or no room."""
        ...

    def release(self, line: int) -> None:
        """Forget the history that is on `line`, if there is one: no state will go on from it."""
        ...


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
