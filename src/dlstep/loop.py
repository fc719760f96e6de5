"""The one effect of a decode: a driver answers a plan. Everything around it is a pure function of the core."""

from typing import Protocol

from .core import LineMismatch, Plan, Samples, State, rebuild, schedule


class Driver(Protocol):
    """A device that runs plans. It owns weights, and the bytes of keys and values; the core owns their names."""

    def run(self, plan: Plan) -> Samples:
        """The samples of `plan`. Raises LineMismatch for a plan that relies on a history other than the device's."""
        ...


def run_next(state: State, driver: Driver) -> tuple[State, Samples]:
    """What was planned, and the samples; to commit to it.

    That state is `state` itself, or `rebuild(state)` when the device holds another history: a new process, another user of
    the same driver, a step back.
    """
    try:
        return state, driver.run(schedule(state))
    except LineMismatch:
        state = rebuild(state)
        return state, driver.run(schedule(state))
