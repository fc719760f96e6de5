"""Runs plans on a network: owns the memory of histories, follows changes of ownership, answers with samples."""

from collections import deque
from collections.abc import Callable
from functools import partial
from threading import Lock

import torch
from torch import nn

from dlstep_kernels.choice import has_kernels

from ..core import Config, LineMismatch, Plan, Samples, Strategy
from ..models import Checkpoint
from ..models.networks import PagedNetwork, paged
from ..models.shapes import embedding_of
from .executor import NOTHING, Executor, Packed, Pending
from .graphs import PaddedExecutor
from .history import Histories, History
from .lowering import Gathered, Target, gather, unpack
from .profile import region
from .rehearsal import buckets_for
from .tables import CarrySlots, page_tables


class TorchDriver:
    """A device for the states of one `Config`, and for others that differ in `num_pages`; threads may share it.

    States of `config.num_pages` pages have one history, those of other numbers `max_histories` more, in memory that is taken
    when they begin. The parts of `run` (`follow`, `gather`, `submit`, `unpack`, `stand`) are public so that their costs can be
    measured. The checkpoint's network is used where it is; with `device` it is moved there; `network` stands in for it. On a
    CUDA device forwards that sample are padded to buckets and, unless `enforce_eager`, captured as graphs. Raises ValueError if
    the configuration does not fit the network, torch.OutOfMemoryError if pages do not fit the device.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        config: Config,
        *,
        device: str | None = None,
        enforce_eager: bool = False,
        max_histories: int = 8,
        network: PagedNetwork | None = None,
    ) -> None:
        if device is not None:
            nn.Module.to(checkpoint.network, torch.device(device))
        embedded = embedding_of(checkpoint.network).num_embeddings
        spec = config.spec
        if spec.vocab_size > embedded or not (spec.mask_id is None or 0 <= spec.mask_id < embedded):
            raise ValueError(
                f"Config.spec has {spec.vocab_size} ids and mask id {spec.mask_id}, the network {checkpoint.name} "
                f"embeds {embedded}: build the Config from checkpoint.spec"
            )
        self.config = config
        self.network = network or paged(checkpoint.network, spec, checkpoint.ranks)
        model = self.network.model
        views = tuple(dict.fromkeys(shape.view for shape in self.network.shapes))
        self._target = Target(config.page_size, spec.head_shift, views, model.device, model.dtype)
        self._captures = not enforce_eager and has_kernels(model.device)
        make = partial(_new_history, self.network, config, self._target, captures=self._captures)  # not of self: no cycle of
        self._histories = Histories(make(config.num_pages), make, max_histories)  # references may keep memory of a device
        self._now = self._histories.main
        self._lock = Lock()
        self._released: deque[int] = deque()

    @property
    def graph_count(self) -> int:
        """How many graphs there are."""
        return sum(history.executor.graph_count for history in self._histories)

    def drop_graphs(self) -> None:
        """Free all graphs, once the device has run them, while nothing else uses the driver."""
        for history in self._histories:
            history.executor.drop_graphs()

    @property
    def padding(self) -> int:
        """Rows beside those of requests that padded forwards computed so far."""
        return sum(history.executor.padding for history in self._histories)

    def capture(self, strategy: Strategy, show: Callable[[int, int], None] = lambda done, total: None) -> None:
        """Capture graphs of what `strategy` samples, greedily and at a temperature, in all sizes: none is captured later.

        That holds for states of `config.num_pages` pages and for options as they are; what others need is captured when it is
        met for the second time. `show` is told how many of how many graphs are there. Without kernels nothing is captured.
        Raises torch.OutOfMemoryError if the graphs do not fit.
        """
        found = buckets_for(self.config, strategy, self.network, self._target) if self._captures else []
        todo = [(idle, bucket) for idle, buckets in found for bucket in buckets]
        for done, (idle, bucket) in enumerate(todo, start=1):
            self._histories.main.executor.capture(idle, bucket)
            show(done, len(todo))

    @region("run")
    def run(self, plan: Plan, meanwhile: Callable[[], None] | None = None) -> Samples:
        """The samples of `plan`. `meanwhile` is called once: while the device works if it only replays, or else before it does.

        A plan may be run again, with the same answer. Raises LineMismatch for one that relies on a history that is not held
        here, DlstepError for one that begins a history for which there is no room.
        """
        with self._lock:
            self._forget_released()
            try:
                self.follow(plan)
            except LineMismatch:
                if meanwhile is not None:
                    meanwhile()
                raise
            forwards = self.gather(plan)
            samples = self.unpack(plan, self.submit(forwards, meanwhile).wait())
            self.stand(samples)
            return samples

    def holds(self, plan: Plan) -> bool:
        """Whether the history is here that `plan` goes on from, or begins."""
        with self._lock:
            self._forget_released()
            return self._histories.holds(plan)

    def fork(self, line: int) -> bool:
        """Copy the history on `line`, so that two states can go on from it; False if there is none or no room."""
        with self._lock:
            return self._histories.fork(line)

    def release(self, line: int) -> None:
        """Forget the history on `line`, now or before the next forward: a finalizer may ask for it at any time."""
        self._released.append(line)
        if self._lock.acquire(blocking=False):
            try:
                self._forget_released()
            finally:
                self._lock.release()

    def _forget_released(self) -> None:
        while self._released:
            self._histories.release(self._released.popleft())

    @region("follow")
    def follow(self, plan: Plan) -> None:
        """Turn to the history that `plan` belongs to, and take over its changes of ownership, once."""
        self._now = self._histories.main  # the one before may have to go
        self._now = self._histories.place(plan)
        self._now.follow(plan)

    @region("gather")
    def gather(self, plan: Plan) -> tuple[Gathered, ...]:
        """The arrays of each forward that `plan` takes. Raises DlstepError for a span that the network has no forward for."""
        now = self._now
        forwards = self.network.forwards(plan) if plan.spans else ()
        moved = plan.releases or plan.preemptions or plan.admissions or plan.grants
        before = None if moved else now.placed
        gathered = tuple([gather(forward, now.tables, self._target, now.slots.slots, before) for forward in forwards])
        now.placed = gathered[-1].placed if gathered else None
        return gathered

    def submit(self, forwards: tuple[Gathered, ...], meanwhile: Callable[[], None] | None = None) -> Pending:
        """Start the forwards, and call `meanwhile` as `run` says; the answer is the last one's, which alone samples."""
        executor = self._now.executor
        later = meanwhile is not None and bool(forwards) and all(executor.replays(gathered) for gathered in forwards)
        if meanwhile is not None and not later:
            meanwhile()
        pending = NOTHING
        for gathered in forwards:
            pending = executor.submit(gathered)
        if meanwhile is not None and later:
            meanwhile()
        return pending

    @region("unpack")
    def unpack(self, plan: Plan, packed: Packed | None) -> Samples:
        """The samples that `packed` holds, span by span."""
        return unpack(plan, packed)

    def stand(self, samples: Samples) -> None:
        """Let the plan behind `samples` go on from them."""
        self._now.line = samples.line


def _new_history(network: PagedNetwork, config: Config, target: Target, num_pages: int, *, captures: bool) -> History:
    """A history without content. Raises torch.OutOfMemoryError with the numbers if there is no room for its pages."""
    memory = network.memory(num_pages, config.page_size, config.max_num_reqs)
    pads = has_kernels(target.device)
    executor = PaddedExecutor(network, memory, target, captures=captures) if pads else Executor(network, memory, target)
    return History(num_pages, memory, executor, page_tables(config), CarrySlots())
