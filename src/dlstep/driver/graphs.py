"""Forward passes padded to bucket sizes, captured as CUDA graphs and replayed from fixed memory.

Padding rows store nothing and attend to nothing, and their samples are dropped.
"""

import gc
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..models.networks import Batch, Memory, PagedNetwork
from .arena import Arena
from .buckets import MAX_PADDED_ROWS, Bucket, Kind, Laid, batch_in, fill, room_for, smallest_bucket
from .executor import Executor, Packed, Pending, Unmask, to_host
from .lowering import Gathered, LoweringTarget, masked_by
from .profile import region

# These filters sort all logits of a row, and their values determine which kernels are launched.
UNCAPTURED = {"top_k", "top_p", "min_p"}


@dataclass(slots=True)
class Side:
    """Host memory of a replay: the arena that it reads, the answer that it writes, and the event after it.

    `laid` has the spans for which the tiles of the arena were computed; None before, and if an update of the arena failed.
    """

    arena: Arena
    received: Packed
    copied: torch.cuda.Event
    laid: Laid | None = None


@dataclass(slots=True)
class Captured:
    """Graphs, the answer that they write on the device, and two sides on the host, which take turns: the current one is first.

    If positions have token masks, a second graph samples; `mask_rows` sends the index of each mask in the table.
    """

    graphs: list[torch.cuda.CUDAGraph]
    answer: Packed
    sides: deque[Side]
    mask_rows: Arena


# What a graph reads and writes, and when the host may touch it.
#
# A graph holds addresses. So each bucket has an arena and memory for the answer, both of fixed size on the device. A replay
# follows a copy from pinned host memory and precedes a copy back. A pass may start ahead while the host still needs the
# memory of the previous pass, so each bucket has host memory for two passes, which take turns.
# Rows beyond those of the plan are padding: they store nothing, see nothing, and the host drops their samples.
# The kernels and their tiles depend on the bucket alone, and passes without a graph are padded to the same
# bucket, so a result does not change by a bit when a bucket is captured. Sorting filters (`UNCAPTURED`) launch
# kernels that depend on values, so they stay outside. All graphs share one memory pool, as they never run at the same time.
#
# Token masks take long to compute, but only sampling reads them. So a bucket with masks has two graphs. The host launches the
# body, computes the masks while the device runs it, and launches the sampling. No other graph runs in between, so the second
# graph finds the rows that the first one has left in the shared pool. The table of token masks may move when it grows: graphs
# that read it are dropped then, and the pass begins again, which stores the same keys and values.
class PaddedExecutor(Executor):
    """An executor that pads forward passes that sample to buckets and, if `captures`, captures them.

    A bucket is captured by `capture`, or otherwise when it occurs for the second time. Forward passes
    without a graph are padded, too, so capturing a bucket does not change a single bit of its results.
    """

    def __init__(self, network: PagedNetwork, memory: Memory, target: LoweringTarget, *, captures: bool) -> None:
        super().__init__(network, memory, target)
        self._captures = captures
        self._met: set[Bucket] = set()
        self._warm: set[Kind] = set()  # kinds for which all layers have run
        self._captured: dict[Bucket, Captured] = {}
        self._mask_words = target.masks.words  # the table of token masks that graphs read
        self._pool: Any = torch.cuda.graph_pool_handle() if captures else None
        # All warm-ups share one stream, because cuBLAS keeps a workspace (32 MiB on Hopper) for each stream.
        self._aside: Any = torch.cuda.Stream(target.device) if captures else None

    @torch.inference_mode()
    def submit(self, gathered: Gathered, unmask: Unmask | None = None) -> Pending:
        """Start a forward pass. Pad it if it samples and is not too large; replay its graph if there is one."""
        return self._padded(gathered, unmask) if _pads(gathered) else super().submit(gathered, unmask)

    def is_quick(self, gathered: Gathered) -> bool:
        """Return whether there is a graph of the forward pass."""
        return _pads(gathered) and self._usable_graph(smallest_bucket(gathered, self._network.canvas_length)) is not None

    @torch.inference_mode()
    def capture(self, idle: Gathered, bucket: Bucket) -> None:
        """Capture `bucket` with `idle`, an empty forward pass of its kind, unless it is captured already.

        Raises torch.OutOfMemoryError if the graph does not fit.
        """
        if self._captures and bucket not in self._captured:
            self._captured[bucket] = self._capture(bucket, idle)

    def drop_graphs(self) -> None:
        """Wait until the device has finished, then free all graphs."""
        self._drop(list(self._captured))

    def _drop(self, buckets: list[Bucket]) -> None:
        if buckets:
            with suppress(RuntimeError):  # after an error, the device runs no graph
                torch.cuda.synchronize(self._target.device)
        for bucket in buckets:
            for graph in self._captured.pop(bucket).graphs:
                graph.reset()  # stack frames of an exception may still refer to the graph
        self.graph_count = len(self._captured)

    def _usable_graph(self, bucket: Bucket) -> Captured | None:
        """Return the graph of a bucket. First drop graphs that read a table of token masks that has been replaced."""
        if self._mask_words is not self._target.masks.words:
            self._drop([each for each in self._captured if each.kind.masked])
            self._mask_words = self._target.masks.words
        return self._captured.get(bucket)

    @region("padded")
    def _padded(self, gathered: Gathered, unmask: Unmask | None = None) -> Pending:
        sampled = len(gathered.arrays["sampled_rows"])
        bucket = smallest_bucket(gathered, self._network.canvas_length)
        captured = self._usable_graph(bucket)
        if captured is None:
            if not self._is_due(bucket):
                self.answer = self._answer(self._filled(bucket, gathered)[1], gathered)
                return to_host(self.answer[:, :sampled])
            captured = self._captured[bucket] = self._capture(bucket, gathered)
        captured.sides.rotate()
        side = captured.sides[0]
        for each in captured.sides if bucket.kind.masked else [side]:
            each.copied.synchronize()  # an interrupt may have left a graph that still reads the host's memory
        laid, side.laid = side.laid, None
        fill(side.arena, bucket, gathered, self._target, laid)
        side.laid = gathered.spans
        side.arena.send()
        if unmask is not None:
            unmask(side.arena.tensors["tokens"])
        captured.graphs[0].replay()
        side.copied.record()
        if bucket.kind.masked:
            rows = self._target.masks.rows_of(gathered.masked)
            if self._mask_words is not self._target.masks.words:
                return self._padded(gathered, unmask)
            host = captured.mask_rows.hosts["rows"]
            host[:sampled], host[sampled:] = rows, 0
            captured.graphs[1].replay()
        side.received.copy_(captured.answer, non_blocking=True)
        side.copied.record()
        self.answer = captured.answer
        return Pending(side.received[:, :sampled], side.copied)

    def _is_due(self, bucket: Bucket) -> bool:
        """Return whether to capture this bucket now, which is when it occurs for the second time."""
        if bucket in self._met:
            return self._captures
        self._met.add(bucket)
        return False

    def _answer(self, batch: Batch, gathered: Gathered) -> Packed:
        answer = self._step(batch, gathered)
        assert answer is not None, "only forward passes that sample are padded"
        return answer

    def _filled(self, bucket: Bucket, gathered: Gathered) -> tuple[Arena, Batch]:
        """Return a new arena, filled with `gathered` on host and device, and the batch in it."""
        arena = room_for(bucket, gathered, self._target)
        fill(arena, bucket, gathered, self._target)
        arena.send()
        return arena, batch_in(arena, bucket, self._target)

    def _warm_up(self, bucket: Bucket, batch: Batch, gathered: Gathered) -> Packed:
        """Launch every kernel of the step, so that none is compiled or loaded during the capture. Return its answer.

        After the first bucket of a kind, the first layers are enough: the others launch the same kernels.
        """
        with self._network.only_first_layers() if bucket.kind in self._warm else nullcontext():
            answer = self._answer(batch, gathered)
        self._warm.add(bucket.kind)
        return answer

    @region("capture")
    def _capture(self, bucket: Bucket, gathered: Gathered) -> Captured:
        """Warm up the step for `gathered`, then capture it."""
        arena, batch = self._filled(bucket, gathered)
        received = self._host_copy(bucket, batch, gathered)
        answer = torch.empty(received.shape, dtype=received.dtype, device=self._target.device)
        mask_rows = Arena({"rows": (np.dtype(np.int64), bucket.rows)}, self._target.device)
        if bucket.kind.masked:
            batch = masked_by(batch, self._target.masks, mask_rows.tensors["rows"])
        rows: Tensor | None = None

        def body() -> None:
            nonlocal rows
            rows = self._forward(batch)

        def sampling() -> None:
            assert rows is not None, "only forward passes that sample are padded"
            answer.copy_(self._sample(batch, rows))

        parts = [(body,), (mask_rows.send, sampling)] if bucket.kind.masked else [(body, sampling)]
        graphs = [self._recorded(*part) for part in parts]
        self.graph_count += 1
        other = torch.empty_like(received, pin_memory=received.is_pinned())
        arenas = arena, room_for(bucket, gathered, self._target).sharing(arena)
        sides = [Side(own, memory, torch.cuda.Event()) for own, memory in zip(arenas, (received, other), strict=True)]
        return Captured(graphs, answer, deque(sides), mask_rows)

    def _host_copy(self, bucket: Bucket, batch: Batch, gathered: Gathered) -> Packed:
        """Warm up the step. Return memory for its answer on the host."""
        device = self._target.device
        self._aside.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(self._aside):
            answer = self._warm_up(bucket, batch, gathered)
            received = torch.empty(answer.shape, dtype=answer.dtype, pin_memory=True)
        torch.cuda.current_stream(device).wait_stream(self._aside)
        return received

    def _recorded(self, *parts: Callable[[], None]) -> torch.cuda.CUDAGraph:
        """Return a graph of what the parts launch."""
        graph = torch.cuda.CUDAGraph()
        collects = gc.isenabled()
        gc.disable()  # freeing another graph would invalidate the capture
        try:
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                for part in parts:
                    part()
        finally:
            if collects:
                gc.enable()
        return graph


def _pads(gathered: Gathered) -> bool:
    """Return whether to pad a forward pass: only one that samples, is not too large, and does not filter or process logits."""
    arrays = gathered.arrays
    if gathered.process is not None:
        return False
    return bool(len(arrays["sampled_rows"])) and len(arrays["tokens"]) <= MAX_PADDED_ROWS and not UNCAPTURED & arrays.keys()
