"""The one effect of a decode: a driver answers a plan. Everything around it is a pure function of the core."""

from typing import Protocol, runtime_checkable

from .plan import Plan, Samples


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
