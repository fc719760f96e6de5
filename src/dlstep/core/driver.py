"""The only side effect of decoding: a driver runs a plan. All code around it is pure."""

from typing import Protocol, runtime_checkable

from .plan import Plan, Samples


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
