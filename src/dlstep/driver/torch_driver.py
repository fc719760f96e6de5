"""Run plans on a network: own the memory of KV caches, and return samples."""

from collections import deque
from collections.abc import Callable
from functools import partial
from threading import Lock

import torch
from torch import nn

from dlstep_kernels.choice import has_kernels

from ..core import CacheMismatch, Config, Plan, Samples, Strategy
from ..models import Checkpoint
from ..models.networks import PagedNetwork, paged
from ..models.shapes import embedding_of
from .executor import NOTHING, Executor, Pending, Work, no_work
from .graphs import PaddedExecutor
from .kv_cache import KVCache, KVCaches
from .lowering import Gathered, LoweringTarget, gather, unpack
from .masks import MaskTable
from .profile import region
from .tables import CarrySlots, page_tables
from .warmup_buckets import buckets_for


class TorchDriver:
    """A thread-safe device for the states of one `Config` and of its variants in `num_pages`.

    States of `config.num_pages` pages share the main KV cache; other numbers of pages get up to
    `max_caches` more, allocated on demand. The steps of `run` (`apply_ownership`, `gather`,
    `submit`, `mark_current`) are public so that they can be timed. `device` moves the
    checkpoint's network; `network` replaces it. On cuda, forward passes that sample are
    padded to buckets and, unless `enforce_eager`, captured as graphs. Raises ValueError if the
    configuration does not fit the network, and torch.OutOfMemoryError if the pages do not fit the
    device.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        config: Config,
        *,
        device: str | None = None,
        enforce_eager: bool = False,
        max_caches: int = 8,
        network: PagedNetwork | None = None,
    ) -> None:
        if device is not None:
            nn.Module.to(checkpoint.network, torch.device(device))
        embedded = embedding_of(checkpoint.network).num_embeddings
        spec = config.spec
        if spec.vocab_size > embedded or not (spec.mask_id is None or 0 <= spec.mask_id < embedded):
            raise ValueError(
                f"Config.spec has {spec.vocab_size} ids and mask id {spec.mask_id}, the network {checkpoint.description.name} "
                f"embeds {embedded}: build the Config from checkpoint.spec"
            )
        self.config = config
        self.network = network or paged(checkpoint.network, spec, checkpoint.ranks)
        model = self.network.model
        views = tuple(dict.fromkeys(shape.view for shape in self.network.shapes))
        masks = MaskTable(spec.vocab_size, model.device)
        self._target = LoweringTarget(
            config.page_size, spec.head_shift, views, model.device, model.dtype, masks, self.network.gated
        )
        self._captures = not enforce_eager and has_kernels(model.device)
        # A partial without `self`: a reference cycle would keep device memory alive.
        make = partial(_new_kv_cache, self.network, config, self._target, captures=self._captures)
        self._caches = KVCaches(make(config.num_pages), make, max_caches)
        self._current = self._caches.main
        self._lock = Lock()
        self._released: deque[int] = deque()

    @property
    def graph_count(self) -> int:
        """Return the number of captured graphs."""
        return sum(cache.executor.graph_count for cache in self._caches)

    def drop_graphs(self) -> None:
        """Free all graphs after the device has finished. No other thread may use the driver."""
        for cache in self._caches:
            cache.executor.drop_graphs()

    @property
    def padding(self) -> int:
        """Return the total number of padding rows of all forward passes."""
        return sum(cache.executor.padding for cache in self._caches)

    def capture(self, strategy: Strategy, show: Callable[[int, int], None] = lambda done, total: None) -> None:
        """Capture graphs for all sizes of `strategy`'s samples, greedy and with a temperature.

        This covers states of `config.num_pages` pages and the strategy's current options; other
        graphs are captured when their bucket occurs for the second time. `show` gets the number of
        captured graphs and their total. Without kernels nothing is captured. Raises
        torch.OutOfMemoryError if the graphs do not fit.
        """
        kinds = buckets_for(self.config, strategy, self.network, self._target) if self._captures else []
        todo = [(idle, bucket) for idle, buckets in kinds for bucket in buckets]
        for done, (idle, bucket) in enumerate(todo, start=1):
            self._caches.main.executor.capture(idle, bucket)
            show(done, len(todo))

    def run(self, plan: Plan) -> Samples:
        """Return the samples of `plan`, as `run_overlapped` does."""
        return self.run_overlapped(plan, no_work)

    @region("run")
    def run_overlapped(self, plan: Plan, meanwhile: Work) -> Samples:
        """Return the samples of `plan`. Running the same plan again returns the same samples.

        Calls `meanwhile` once, after starting the first forward pass; with several ranks, before it,
        unless it replays a graph. Raises CacheMismatch if the driver does not hold the plan's KV cache,
        and DlstepError if there is no room.
        """
        with self._lock:
            self._forget_released()
            try:
                self.apply_ownership(plan)
            except CacheMismatch:
                meanwhile()
                raise
            pending = self.submit(self.gather(plan), meanwhile)
            marks = [span.mark() for span in plan.spans]  # while the device works
            samples = unpack(plan, pending.wait(), marks)
            self.mark_current(samples)
            return samples

    def holds(self, plan: Plan) -> bool:
        """Return whether the KV cache that `plan` continues is here, or `plan` begins one."""
        with self._lock:
            self._forget_released()
            return self._caches.holds(plan)

    def fork(self, cache_digest: int) -> bool:
        """Copy the cache with this digest for a second state; return False if impossible."""
        with self._lock:
            return self._caches.fork(cache_digest)

    def release(self, cache_digest: int) -> None:
        """Forget the cache with this digest before the next forward pass. Safe in finalizers."""
        self._released.append(cache_digest)
        if self._lock.acquire(blocking=False):
            try:
                self._forget_released()
            finally:
                self._lock.release()

    def _forget_released(self) -> None:
        while self._released:
            self._caches.release(self._released.popleft())

    @region("follow")
    def apply_ownership(self, plan: Plan) -> None:
        """Select the KV cache of `plan`, and apply the plan's ownership changes to it once."""
        self._current = self._caches.main  # drop the reference to a cache that `place` may free
        self._current = self._caches.place(plan)
        self._current.apply_ownership(plan)

    @region("gather")
    def gather(self, plan: Plan) -> tuple[Gathered, ...]:
        """Return the arrays of each forward pass. Raises DlstepError for an unsupported span."""
        cache = self._current
        forwards = self.network.forwards(plan) if plan.spans else ()
        reassigned = plan.releases or plan.preemptions or plan.admissions or plan.grants
        before = None if reassigned else cache.placed
        gathered = tuple([gather(forward, cache.tables, self._target, cache.slots.slots, before) for forward in forwards])
        cache.placed = gathered[-1].placed if gathered else None
        return gathered

    def submit(self, forwards: tuple[Gathered, ...], meanwhile: Work = no_work) -> Pending:
        """Start the forward passes, of which only the last one samples. Call `meanwhile` once, with the first."""
        if not forwards:
            meanwhile()
        pending = NOTHING
        for gathered in forwards:
            pending = self._current.executor.submit(gathered, meanwhile)
            meanwhile = no_work
        return pending

    def mark_current(self, samples: Samples) -> None:
        """Set the cache's digest to that of `samples`, so that the next plan can continue."""
        self._current.digest = samples.cache_digest


def _new_kv_cache(network: PagedNetwork, config: Config, target: LoweringTarget, num_pages: int, *, captures: bool) -> KVCache:
    """Return an empty KV cache. Raises torch.OutOfMemoryError with the numbers if too large."""
    memory = network.memory(num_pages, config.page_size, config.max_num_reqs)
    pads = has_kernels(target.device)
    executor = PaddedExecutor(network, memory, target, captures=captures) if pads else Executor(network, memory, target)
    return KVCache(num_pages, memory, executor, page_tables(config), CarrySlots())
