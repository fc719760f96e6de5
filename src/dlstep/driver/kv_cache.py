"""Separate KV caches, each with the digest of its content, so that no state reads another's."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from ..core import EMPTY_CACHE, CacheMismatch, DlstepError, Plan
from ..models.networks import Memory
from .executor import Executor
from .lowering import Placed
from .tables import CarrySlots, PageTables

FREE_DIGEST = -1  # no state continues this cache


@dataclass(eq=False)
class KVCache:
    """The KV cache of one state, and which requests own its pages.

    `digest` is the cache digest of the state that may continue from here, `last` the plan that led
    to it (which may be run again), and `placed` has the rows of the last forward pass. `executor`
    runs on `memory`.
    """

    num_pages: int
    memory: Memory
    executor: Executor
    tables: PageTables
    slots: CarrySlots
    digest: int = FREE_DIGEST
    last: Plan | None = None
    placed: Placed | None = None

    def apply_ownership(self, plan: Plan) -> None:
        """Apply the changes of page and slot ownership in `plan`, unless it repeats the last plan.

        If the forward pass then fails, only the same plan, or one for an empty cache, may follow.
        """
        if plan.cache_digest != EMPTY_CACHE and (plan is self.last or plan == self.last):
            return
        self.digest, self.last = FREE_DIGEST, None
        if plan.cache_digest == EMPTY_CACHE:
            self.tables.clear()
            self.slots.clear()
        self.tables.apply(plan)
        self.slots.apply(plan)
        self.last = plan

    def copy(self, other: "KVCache") -> None:
        """Copy the content of `other`, which must have the same number of pages."""
        self.memory.copy(other.memory)
        self.tables.copy(other.tables)
        self.slots.slots = dict(other.slots.slots)
        self.digest, self.last, self.placed = other.digest, other.last, None


class KVCaches:
    """A main KV cache for states of `main.num_pages` pages, and up to `most` others on demand.

    A plan that starts from an empty cache gets the main cache if its number of pages matches.
    Otherwise it gets a free cache, a new one, or the least recently used one, whose state loses it.
    """

    def __init__(self, main: KVCache, make: Callable[[int], KVCache], most: int) -> None:
        self.main, self._make, self._most = main, make, most
        self._others: list[KVCache] = []  # least recently used first

    def __iter__(self) -> Iterator[KVCache]:
        return iter((self.main, *self._others))

    def place(self, plan: Plan) -> KVCache:
        """Return the cache that `plan` continues, repeats or begins, or raise CacheMismatch."""
        if plan.cache_digest == EMPTY_CACHE:
            cache = self.main if plan.num_pages == self.main.num_pages else self._new(plan.num_pages)
        else:
            cache = self._for_plan(plan)
        if cache is None:
            raise CacheMismatch(
                f"step {plan.step} continues the cache digest {plan.cache_digest}, which no KV cache of the device has: "
                "rebuild(state) makes a state that any driver accepts"
            )
        if cache is not self.main:
            self._others.remove(cache)
            self._others.append(cache)
        return cache

    def holds(self, plan: Plan) -> bool:
        """Return whether `place` would find or begin a cache for `plan`."""
        return plan.cache_digest == EMPTY_CACHE or self._for_plan(plan) is not None

    def fork(self, cache_digest: int) -> bool:
        """Copy the cache with this digest; return False if there is none, or no room for a copy."""
        cache = self._with_digest(cache_digest)
        if cache is None or len(self._others) >= self._most:
            return False
        try:
            copy = self._make(cache.num_pages)
        except torch.OutOfMemoryError:
            return False
        copy.copy(cache)
        self._others.append(copy)
        return True

    def release(self, cache_digest: int) -> None:
        """Forget the cache with this digest, and free its memory unless it is the main one."""
        cache = self._with_digest(cache_digest)
        if cache is self.main:
            self.main.digest, self.main.last = FREE_DIGEST, None
        elif cache is not None:
            self._others.remove(cache)

    def _with_digest(self, cache_digest: int) -> KVCache | None:
        return next((cache for cache in self if cache.digest == cache_digest), None)

    def _for_plan(self, plan: Plan) -> KVCache | None:
        return self._with_digest(plan.cache_digest) or next((cache for cache in self if cache.last == plan), None)

    def _new(self, num_pages: int) -> KVCache:
        free = [cache for cache in self._others if cache.digest == FREE_DIGEST and cache.num_pages == num_pages]
        if free:
            return free[0]
        # Drop references before allocating, so that the memory of dropped caches is free.
        self._others = [cache for cache in self._others if cache.digest != FREE_DIGEST]
        while len(self._others) >= self._most and self._others:
            if self._others[0].num_pages == num_pages:
                self._others.append(self._others.pop(0))
                return self._others[-1]
            del self._others[0]
        while True:
            try:
                cache = self._make(num_pages)
                break
            except torch.OutOfMemoryError as error:
                if not self._others:
                    raise DlstepError(f"there is no room for another KV cache: {error}") from error
                self._others.pop(0)
        self._others.append(cache)
        return cache
