"""Run plans on a network: own the memory of KV caches, and return samples.

Each KV cache has an owner and a digest of its content, so that no state reads another's KV cache.
"""

import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Lock

import torch

from dlstep_kernels.choice import has_kernels

from ..core import EMPTY_CACHE, CacheMismatch, Config, DlstepError, Plan, PlanAhead, Samples, Strategy
from ..models import Checkpoint
from ..models.networks import Batch, Memory, PagedNetwork, paged
from ..models.shapes import embedding_of, kv_bytes_per_token
from ..models.updating import Weights
from .executor import NOTHING, Executor, Pending
from .graphs import PaddedExecutor
from .lowering import NO_ERRORS, Gathered, LoweringTarget, Placed, gather, lower, unpack, with_masks
from .pass_ahead import PassAhead, launched
from .processing import Processing, Unguided, unguided_plan
from .profile import region
from .tables import MaskTable, PageTables
from .warmup import buckets_for

FREE_DIGEST = -1  # no state continues this cache


# Where KV caches live, and how a plan finds the right one.
#
# The core owns the numbers of pages, the driver owns their bytes. An engine decodes several states: one of the `LLM`, one
# of each `Session`, and forks of both. Each needs its own KV cache, because two states use one page number for different
# tokens. A state is a value that may be copied, rewound or read from a file, so it cannot refer to memory. It has a cache
# digest instead: `next_cache_digest` hashes the digest before a plan, everything that the plan stores and the tokens that
# were sampled. Equal digests therefore mean equal keys, values and owners of pages.
# Each plan has the digest of its state. `KVCaches.place` selects the cache of the plan's owner (the number of a `Decode`) if
# that cache has this digest, or if the same plan ran there last: running it again stores the same keys and values.
# A plan with EMPTY_CACHE needs no content. It gets the cache that its owner already has, the main cache if that is free, a
# new cache, or the least recently used cache of another owner. The next plan of that other owner raises CacheMismatch, and
# its `Decode` rebuilds the cache.
# While a new plan runs, the digest is FREE_DIGEST, so that after a failed pass no other plan can continue from this cache.


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
    digest: int = FREE_DIGEST
    last: Plan | None = None
    placed: Placed | None = None

    def apply_ownership(self, plan: Plan) -> None:
        """Apply the changes of page and slot ownership in `plan`, unless it repeats the last plan.

        If the forward pass then fails, only the same plan, or one for an empty cache, may follow.
        """
        if plan.cache_digest != EMPTY_CACHE and (plan is self.last or plan == self.last):
            self.last = plan
            return
        self.digest, self.last = FREE_DIGEST, None
        if plan.cache_digest == EMPTY_CACHE:
            self.tables.clear()
        self.tables.apply(plan)
        self.last = plan

    def copy(self, other: "KVCache") -> None:
        """Copy the content of `other`, which must not have more pages."""
        self.memory.copy(other.memory)
        self.tables = deepcopy(other.tables)
        self.digest, self.last, self.placed = other.digest, other.last, None


class KVCaches:
    """The KV caches of owners: a main one for a state of `main.num_pages` pages, and up to `most` others on demand.

    A plan that starts from an empty cache gets the cache of its owner if that has enough pages.
    Otherwise it gets the main cache if that one is free, a new one, or the least recently used one, whose
    owner loses it.
    """

    def __init__(self, main: KVCache, make: Callable[[int], KVCache], most: int) -> None:
        self.main, self._make, self._most = main, make, most
        # Least recently used first. `release` may remove entries at any time, so read the dict in one operation.
        self._owned: dict[int, KVCache] = {}

    def __iter__(self) -> Iterator[KVCache]:
        return iter(dict.fromkeys((self.main, *self._owned.values())))

    def place(self, plan: Plan, owner: int) -> KVCache:
        """Return the owner's cache, which `plan` continues, repeats or begins, or raise CacheMismatch.

        If the plan has more pages than the cache, a larger one replaces it.
        """
        if not self.holds(plan, owner):
            raise CacheMismatch(
                f"step {plan.step} continues the cache digest {plan.cache_digest}, which no KV cache of its owner has: "
                "rebuild(state) makes a state that any driver accepts"
            )
        cache, smaller = self._owned.pop(owner, None), None
        if cache is not None and cache.num_pages < plan.num_pages:
            smaller, cache = None if plan.cache_digest == EMPTY_CACHE else cache, None
        if cache is None:
            try:
                cache = self._new(plan.num_pages)
            except DlstepError as error:
                if smaller is None:
                    raise
                raise CacheMismatch(f"step {plan.step}: there is no room to copy a KV cache: {error}") from None
            if smaller is not None:
                cache.copy(smaller)
        self._owned[owner] = cache
        return cache

    def holds(self, plan: Plan, owner: int | None) -> bool:
        """Return whether `plan` begins a cache, or the owner has the one that it continues or repeats. None: any owner."""
        return plan.cache_digest == EMPTY_CACHE or self._for_plan(plan, owner) is not None

    def lent(self, plan: Plan) -> KVCache | None:
        """Return a cache of any owner in whose memory `plan` can run; None if there is none."""
        if plan.cache_digest == EMPTY_CACHE:
            return next((cache for cache in self if cache.num_pages >= plan.num_pages), None)
        cache = self._for_plan(plan, None)
        return cache if cache is None or cache.num_pages >= plan.num_pages else None

    def fork(self, cache_digest: int, owner: int) -> bool:
        """Copy a cache with this digest for `owner`; return False if there is none, or no room for a copy."""
        cache = next((cache for cache in self if cache.digest == cache_digest), None)
        if cache is None or len(self._others) >= self._most:
            return False
        try:
            copy = self._make(cache.num_pages)
        except torch.OutOfMemoryError:
            return False
        copy.copy(cache)
        self._owned[owner] = copy
        return True

    def release(self, owner: int) -> None:
        """Forget the cache of an owner, and free its memory unless it is the main one."""
        self._owned.pop(owner, None)

    def forget(self) -> None:
        """Take the caches from all owners, and free the memory of all but the main one."""
        self._owned.clear()
        self.main.digest, self.main.last, self.main.placed = FREE_DIGEST, None, None

    @property
    def size(self) -> int:
        """Bytes of the memory of all caches."""
        return sum(tensor.nbytes for cache in self for tensor in cache.memory.tensors)

    def _for_plan(self, plan: Plan, owner: int | None) -> KVCache | None:
        caches = self if owner is None else [cache for cache in [self._owned.get(owner)] if cache is not None]
        return next((cache for cache in caches if plan.cache_digest == cache.digest or plan == cache.last), None)

    @property
    def _others(self) -> list[int]:
        """The owners of caches other than the main one."""
        return [owner for owner, cache in list(self._owned.items()) if cache is not self.main]

    def _new(self, num_pages: int) -> KVCache:
        """Return a cache without an owner. If there is no room for a new one, evict the least recently used cache."""
        if num_pages == self.main.num_pages and self.main not in self._owned.values():
            return self.main
        while True:
            others = self._others
            try:
                if len(others) < max(1, self._most):
                    return self._make(num_pages)
            except torch.OutOfMemoryError as error:
                if not others and num_pages == self.main.num_pages:
                    others = [*self._owned]
                if not others:
                    raise DlstepError(f"there is no room for another KV cache: {error}") from error
            cache = self._owned.pop(others[0], None)
            if cache is not None and cache.num_pages == num_pages:
                return cache
            del cache  # frees its memory


class StartedPlan:
    """A plan whose forward passes were launched. No other plan may use `cache` before `wait`, or the digest stays unset."""

    def __init__(
        self, plan: Plan, cache: KVCache, pending: Pending, marks: Sequence[int], errors: Mapping[int, str], lock: Lock
    ) -> None:
        self.plan, self._cache, self._pending, self._lock = plan, cache, pending, lock
        self._marks, self._errors = marks, errors
        self.columns = pending.columns

    @region("wait")
    def wait(self) -> Samples:
        """Return the samples once the device has computed them."""
        with self._lock:
            samples = unpack(self.plan, self._pending.wait(), self._marks, self._errors)
            self._pending = NOTHING
            if self._cache.last is self.plan:
                self._cache.digest = samples.cache_digest
            return samples

    def settle(self) -> None:
        """Wait for the device, and copy the numbers out of the memory that the next replay of the graph overwrites."""
        if (packed := self._pending.wait()) is not None:
            self._pending = Pending(packed.clone())


class TorchDriver:
    """A thread-safe device for the states of one `Config` and of its variants in `num_pages`.

    States of `config.num_pages` pages share the main KV cache; other numbers of pages get up to
    `max_caches` more, allocated on demand. The steps of `run` (`apply_ownership`, `gather`, `submit`)
    are public so that they can be timed. On cuda, forward passes that sample
    are padded to buckets and, unless `enforce_eager`, captured as graphs. Raises ValueError if the
    configuration does not fit the network, and torch.OutOfMemoryError if the pages do not fit the
    device.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        config: Config,
        *,
        enforce_eager: bool = False,
        max_caches: int = 8,
        weights: Weights | None = None,
    ) -> None:
        embedded = embedding_of(checkpoint.network).num_embeddings
        spec = config.spec
        if spec.vocab_size > embedded or not (spec.mask_id is None or 0 <= spec.mask_id < embedded):
            raise ValueError(
                f"Config.spec has {spec.vocab_size} ids and mask id {spec.mask_id}, the network {checkpoint.description.name} "
                f"embeds {embedded}: build the Config from checkpoint.spec"
            )
        self.config = config
        self.network = paged(checkpoint, spec)
        model = self.network.model
        views = tuple(dict.fromkeys(shape.view for shape in self.network.shapes))
        masks = MaskTable(spec.vocab_size, model.device)
        self._target = LoweringTarget(
            config.page_size, spec.head_shift, views, model.device, model.dtype, masks, self.network.gated
        )
        self._captures = not enforce_eager and has_kernels(model.device)
        self.weights = Weights(checkpoint) if weights is None else weights
        self.weights_version = 0  # number of updates
        self._max_caches = max_caches
        self._strategy: Strategy | None = None  # whose graphs were captured
        self._asleep, self._unready = False, ""  # `_unready`: why the weights cannot be used
        self._lock = Lock()
        self._released: set[int] = set()
        self._started: StartedPlan | None = None
        self.starts_ahead = self._captures and not checkpoint.ranks.several
        self._pass_ahead: PassAhead | None = None  # behind the started plan
        self._allocate(config.num_pages)

    def _allocate(self, num_pages: int) -> None:
        """Replace all KV caches by one main cache with `num_pages` pages."""
        # A partial without `self`: a reference cycle would keep device memory alive.
        make = partial(_new_kv_cache, self.network, self.config, self._target, captures=self._captures)
        self._caches = KVCaches(make(num_pages), make, self._max_caches)
        self._current = self._caches.main

    @property
    def graph_count(self) -> int:
        """Return the number of captured graphs."""
        return sum(cache.executor.graph_count for cache in self._caches)

    def drop_graphs(self) -> None:
        """Free all graphs after the device has finished. No other thread may use the driver."""
        for cache in self._caches:
            cache.executor.drop_graphs()

    def capture(self, strategy: Strategy, show: Callable[[int, int], None] = lambda done, total: None) -> None:
        """Capture graphs for all sizes of `strategy`'s samples, greedy and with a temperature.

        This covers states of `config.num_pages` pages and the strategy's current options; other
        graphs are captured when their bucket occurs for the second time. `show` gets the number of
        captured graphs and their total. Without kernels nothing is captured. Raises
        torch.OutOfMemoryError if the graphs do not fit.
        """
        self._strategy = strategy
        kinds = buckets_for(self.config, strategy, self.network, self._target) if self._captures else []
        todo = [(idle, bucket) for idle, buckets in kinds for bucket in buckets]
        for done, (idle, bucket) in enumerate(todo, start=1):
            self._caches.main.executor.capture(idle, bucket)
            show(done, len(todo))

    def run(self, plan: Plan, owner: int = 0) -> Samples:
        """Return the samples of `plan`, as `start` and `wait` do."""
        return self.start(plan, owner).wait()

    @region("start")
    def start(self, plan: Plan, owner: int = 0, agree: Callable[[], None] = lambda: None) -> StartedPlan:
        """Launch the forward passes of `plan`. Running the same plan again returns the same samples.

        `owner` is the number of the decode whose KV cache the plan continues. `agree` is called just before
        the launch: several ranks compare their cache digests there, because operations of a rank wait for those
        of the others. Raises CacheMismatch if the owner does not have the plan's KV cache, and DlstepError if there
        is no room.
        """
        with self._lock:
            self.check()
            ahead = self._pass_ahead
            self._settle()
            self._forget_released()
            self.apply_ownership(plan, owner)
            cache, forwards, pending = self._current, (), None
            if ahead is not None and cache.placed is ahead.placed:  # no other pass has run on this cache
                pending = ahead.samples_of(plan)
            if pending is None:
                forwards = self.gather(plan)
                agree()
                pending = self.submit(forwards)
            marks = [span.mark() for span in plan.spans]  # while the device works
            process = forwards[-1].process if forwards else None
            errors = process.errors if isinstance(process, Processing) else NO_ERRORS
            self._started = StartedPlan(plan, cache, pending, marks, errors, self._lock)
            return self._started

    @region("start ahead")
    def start_ahead(self, ahead: PlanAhead) -> bool:
        """Launch `ahead.plan` behind the plan that was started last, if that is `ahead.before` and a graph exists."""
        with self._lock:
            cache, started, (forward, *others) = self._current, self._started, self.network.forwards(ahead.plan)
            if not self.starts_ahead or others or started is None or started.plan is not ahead.before:
                return False
            gathered = gather(forward, cache.tables, self._target, cache.placed)
            if not len(gathered.arrays["sampled_rows"]) or not cache.executor.is_quick(gathered):
                return False
            cache.placed = gathered.placed
            self._pass_ahead = launched(ahead, gathered, cache.executor, started.columns, self._target.device)
            return True

    def _settle(self) -> None:
        self._pass_ahead = None
        if self._started is not None:
            self._started.settle()  # its caller may never wait for it, after an interrupt
            self._started = None

    def check(self, fingerprint: str | None = None) -> None:
        """Raise DlstepError if no plan can run now, or if the weights do not have the given fingerprint."""
        if self._asleep:
            raise DlstepError("the engine sleeps: call wake_up() first")
        if self._unready:
            raise DlstepError(self._unready)
        if fingerprint not in (None, self.fingerprint):
            raise DlstepError("the weights were updated after these requests began: submit them again, to a new session")

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the weights."""
        return self.config.spec.fingerprint

    def update(self, source: Path | Mapping[str, torch.Tensor]) -> int:
        """Replace the weights, as `Weights.update` does, and drop all KV caches. Return the new version. Graphs stay valid.

        If it fails once tensors are written, no plan can run until an update succeeds.
        """
        with self._lock:
            self._settle()
            fingerprint = self.weights.update(source, self._begin_update)
            self._synchronize()
            self.config = replace(self.config, spec=replace(self.config.spec, fingerprint=fingerprint))
            self.weights_version += 1
            self._unready = ""
            return self.weights_version

    def _begin_update(self) -> None:
        self._unready = "the last update of the weights failed or was interrupted: call update_weights() again"
        self._caches.forget()
        self._current = self._caches.main

    def sleep(self, level: int) -> tuple[int, int]:
        """Free all KV caches and graphs, and move the weights to the host (level 1) or drop them (2).

        Return the bytes of memory in use on the device before and after.
        """
        with self._lock:
            self._settle()
            before = self._in_use()
            self.drop_graphs()
            if not self._asleep:
                self._allocate(0)
            self._asleep = True
            self.weights.free(keep=level == 1)
            if level == 2:
                self._unready = "the weights were dropped by sleep(level=2): call update_weights()"
            return before, self._in_use()

    def wake_up(self) -> tuple[int, int]:
        """Allocate everything that `sleep` freed, and capture the graphs again. Return the bytes in use before and after."""
        with self._lock:
            before = self._in_use()
            if self._asleep:
                self.weights.restore()
                self._allocate(self.config.num_pages)
                self._asleep = False
                if self._strategy is not None:
                    self.capture(self._strategy)
            return before, self._in_use()

    def _synchronize(self) -> None:
        if self.network.model.device.type == "cuda":
            torch.cuda.synchronize(self.network.model.device)

    def _in_use(self) -> int:
        """Return the bytes that torch has reserved on a CUDA device; otherwise, those of the weights and the KV caches."""
        if self.network.model.device.type != "cuda":
            return self.weights.size + self._caches.size
        self._synchronize()
        torch.cuda.empty_cache()
        return torch.cuda.memory_reserved(self.network.model.device)

    def holds(self, plan: Plan, owner: int | None = None) -> bool:
        """Return whether the owner, or with None any owner, has the KV cache that `plan` continues, or `plan` begins one."""
        with self._lock:
            self._forget_released()
            return self._caches.holds(plan, owner)

    def fork(self, cache_digest: int, owner: int) -> bool:
        """Copy a cache with this digest for a new owner; return False if impossible."""
        with self._lock:
            self._forget_released()
            return self._caches.fork(cache_digest, owner)

    def room(self) -> int:
        """Return how many pages fit into the free memory of a GPU; without a GPU, no limit."""
        device = self.network.model.device
        if device.type != "cuda":
            return sys.maxsize
        position = kv_bytes_per_token(self.network.shapes, self.network.kv_dtype)
        return torch.cuda.mem_get_info(device)[0] // (self.config.page_size * position)

    @contextmanager
    def lent(self, plan: Plan, earlier: Sequence[Plan] = ()) -> Generator[tuple[Memory, list[tuple[Plan, Gathered, Batch]]]]:
        """Yield memory in which `plan` can run, and the plan's forward passes. Restore all KV caches afterwards.

        If the device does not have the plan's KV cache, compute it in new memory by running the `earlier` plans,
        the first of which needs no cache. Raises torch.OutOfMemoryError if there is no room for that.
        """
        with self._lock:
            self._forget_released()
            cache = self._caches.lent(plan) or self._replayed(earlier or [plan])
            cache = replace(cache, tables=deepcopy(cache.tables))
            cache.apply_ownership(plan)
            forwards = self.network.forwards(plan)
            gathered = [gather(forward, cache.tables, self._target) for forward in forwards]
            batches = [with_masks(lower(each, self._target), each, self._target) for each in gathered]
            slots = torch.cat([batch.slot_mapping[batch.slot_mapping >= 0] for batch in batches])
            places = torch.cat([slots[:0] if batch.carry is None else batch.carry.left for batch in batches])
            with cache.memory.restoring(slots, places):
                if (masked := self._unguided(plan, gathered, cache)) is not None:
                    cache.executor.submit(masked)
                yield cache.memory, list(zip(forwards, gathered, batches, strict=True))

    def _replayed(self, plans: Sequence[Plan]) -> KVCache:
        """Return a new KV cache in which these plans have run."""
        cache = _new_kv_cache(self.network, self.config, self._target, plans[-1].num_pages, captures=False)
        for plan in plans:
            cache.apply_ownership(plan)
            for forward in self.network.forwards(plan):
                cache.executor.submit(gather(forward, cache.tables, self._target)).wait()
        return cache

    def release(self, owner: int) -> None:
        """Forget the owner's cache: at once, or before the next forward pass if one is running.

        This takes no lock, because a finalizer may call it inside any other method. An interrupt at any place
        leaves nothing to clean up.
        """
        self._released.add(owner)
        if not self._lock.locked():
            self._forget_released()

    def _forget_released(self) -> None:
        for owner in list(self._released):
            self._caches.release(owner)
            self._released.discard(owner)

    @region("follow")
    def apply_ownership(self, plan: Plan, owner: int = 0) -> None:
        """Select the KV cache of the owner of `plan`, and apply the plan's ownership changes to it once."""
        self._current = self._caches.main  # drop the reference to a cache that `place` may free
        self._current = self._caches.place(plan, owner)
        self._current.apply_ownership(plan)

    @region("gather")
    def gather(self, plan: Plan) -> tuple[Gathered, ...]:
        """Return the arrays of each forward pass."""
        cache = self._current
        forwards = self.network.forwards(plan) if plan.spans else ()
        reassigned = plan.releases or plan.preemptions or plan.admissions or plan.grants
        before = None if reassigned else cache.placed
        gathered = tuple([gather(forward, cache.tables, self._target, before) for forward in forwards])
        cache.placed = gathered[-1].placed if gathered else None
        masked = self._unguided(plan, gathered, cache)
        return gathered if masked is None else (masked, *gathered)

    def _unguided(self, plan: Plan, forwards: Sequence[Gathered], cache: KVCache) -> Gathered | None:
        """Return the pass of guided requests with masked prompts, which runs first; None without guided requests."""
        process, mask_id = forwards[-1].process if forwards else None, self.config.spec.mask_id
        if not isinstance(process, Processing) or mask_id is None or not (guided := process.guided):
            return None
        masked = gather(unguided_plan(plan, guided, mask_id), cache.tables, self._target)
        return replace(masked, process=Unguided(guided))

    def submit(self, forwards: tuple[Gathered, ...]) -> Pending:
        """Start the forward passes, of which only the last one samples."""
        pending = NOTHING
        for gathered in forwards:
            pending = self._current.executor.submit(gathered)
        return pending


def _new_kv_cache(network: PagedNetwork, config: Config, target: LoweringTarget, num_pages: int, *, captures: bool) -> KVCache:
    """Return an empty KV cache. Raises torch.OutOfMemoryError with the numbers if too large."""
    memory = network.memory(num_pages, config.page_size, config.max_num_reqs)
    pads = has_kernels(target.device)
    executor = PaddedExecutor(network, memory, target, captures=captures) if pads else Executor(network, memory, target)
    return KVCache(num_pages, memory, executor, PageTables(config))
