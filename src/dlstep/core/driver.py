"""The only side effect of decoding: a driver runs a plan. All code around it is pure."""

from typing import Protocol, runtime_checkable

from .plan import Plan, Samples


class Driver(Protocol):
    """A device that runs plans. It owns weights and KV bytes; the core owns page numbers."""

    def run(self, plan: Plan) -> Samples:
        """Run `plan` and return its samples. Raises CacheMismatch without the plan's KV cache."""
        ...


@runtime_checkable
class CachingDriver(Driver, Protocol):
    """A driver that keeps KV caches and accepts hints, which save work but change no answer."""

    def fork(self, cache_digest: int) -> bool:
        """Copy the KV cache with this digest for a second state. Return False if not copied."""
        ...

    def release(self, cache_digest: int) -> None:
        """Drop the KV cache with this digest, if there is one: no state will use it again."""
        ...
