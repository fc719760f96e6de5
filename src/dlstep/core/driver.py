"""The only side effect of decoding: a driver runs a plan. All code around it is pure."""

from typing import Protocol, runtime_checkable

from .plan import Plan, Samples


class Driver(Protocol):
    """A device that runs plans. It owns weights and KV bytes; the core owns page numbers."""

    def run(self, plan: Plan) -> Samples:
        """Run `plan` and return its samples. Raises LineMismatch without the plan's history."""
        ...


@runtime_checkable
class HistoryDriver(Driver, Protocol):
    """A driver that keeps histories and accepts hints, which save work but change no answer."""

    def fork(self, line: int) -> bool:
        """Copy the history of `line`, so that two states can continue it. Return False if not."""
        ...

    def release(self, line: int) -> None:
        """Drop the history of `line`, if there is one: no state will continue from it."""
        ...
