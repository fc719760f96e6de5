"""The only side effect of decoding: a driver runs a plan. All code around it is pure."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from .commit import Prepared, prepare
from .plan import Plan, Samples
from .state import State


class Driver(Protocol):
    """A device that runs plans. It owns weights and KV bytes; the core owns page numbers."""

    def run(self, plan: Plan) -> Samples:
        """Run `plan` and return its samples.

        Args:
            plan: The plan of a forward pass.

        Raises:
            CacheMismatch: If the device does not hold the KV cache that the plan needs.
        """
        ...


@runtime_checkable
class OverlappingDriver(Driver, Protocol):
    """A driver that calls a function of its caller while the device runs a plan."""

    def run_overlapped(self, plan: Plan, meanwhile: Callable[[], None]) -> Samples:
        """Run `plan` as `run` does, and call `meanwhile` exactly once, even before raising CacheMismatch.

        Args:
            plan: The plan of a forward pass.
            meanwhile: Work for the host, while the device runs the plan or before it starts.
        """
        ...


RunOverlapped = Callable[[Plan, Callable[[], None]], Samples]


def run_prepared(run_overlapped: RunOverlapped, state: State, plan: Plan) -> tuple[Samples, Prepared | None]:
    """Return the samples of a plan, and the prepared part of its commit; None if nothing was prepared.

    Nothing is prepared for plans with preemptions, because `prepare` would run user code during the
    forward pass.

    Args:
        run_overlapped: The method of an `OverlappingDriver`.
        state: The state that made the plan.
        plan: The plan.
    """
    if plan.preemptions:
        return run_overlapped(plan, lambda: None), None
    prepared: list[Prepared] = []
    samples = run_overlapped(plan, lambda: prepared.append(prepare(state, plan)))
    return samples, prepared[0] if prepared else None


@runtime_checkable
class CachingDriver(Driver, Protocol):
    """A driver that keeps KV caches and accepts hints, which save work but change no answer."""

    def fork(self, cache_digest: int) -> bool:
        """Copy a KV cache for a second state. Return whether there was one to copy, and room for it.

        Args:
            cache_digest: Cache digest of the KV cache.
        """
        ...

    def release(self, cache_digest: int) -> None:
        """Drop a KV cache, if there is one with this digest: no state will use it again.

        Args:
            cache_digest: Cache digest of the KV cache.
        """
        ...
