"""The driver of the first of two ranks, for decodes on a shadow device."""

from collections.abc import Callable
from dataclasses import dataclass

from dlstep.core import Event, Plan, Samples, State, commit, schedule
from dlstep.core.lifecycle import apply
from dlstep.testing.sharing import FaultyDriver, FaultySamples


class Follower:
    """A leader that also keeps the state of a second rank, which advances even if samples are lost on the way to the first."""

    def __init__(self, driver: FaultyDriver, state: State) -> None:
        self._driver, self._state = driver, state
        self.changes: list[Event | State] = []

    def apply(self, event: Event) -> None:
        """Keep an event for the other rank, except samples, which this rank gets itself."""
        if not isinstance(event, Samples):
            self.changes.append(event)

    def rewind(self, state: State) -> None:
        """Replace all kept events by a state."""
        self.changes = [state]

    def start(self, plan: Plan, owner: int = 0) -> FaultySamples:
        """Start a plan, after checking that the other rank makes the same one."""
        for change in self.changes:
            self._state = change if isinstance(change, State) else apply(self._state, change)
        self.changes = []
        assert schedule(self._state) == plan, "another rank would run something else"
        pending = self._driver.start(plan, owner)
        self._state = commit(self._state, pending.samples)
        return pending

    def run(self, plan: Plan) -> Samples:
        """Return the samples of `plan`."""
        return self.start(plan).wait()


@dataclass
class LeadingDriver(FaultyDriver):
    """The driver of the first of two ranks."""

    def lead(self, state: State, owner: int) -> Follower:
        """Return the leader of a decode that begins at `state`."""
        del owner
        return Follower(self, state)

    def when_lost(self, call: Callable[[str], None]) -> None:
        """Do nothing: no rank is ever lost."""
