"""Forwards captured as CUDA graphs: launched as one, from memory that stays in place, for sizes rounded up to buckets.

What a bucket has too much is padding: rows that are stored nowhere and see nothing, wanted rows whose answer is dropped.
"""

import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor

from dlstep_kernels import Reading
from dlstep_kernels.tiles import TileShape, rows_of_tile, tile_numbers, tiles_over

from .arena import Arena
from .lowering import Batch, Gathered, Target, View, batch_of

MOST_ROWS = 8192  # a larger forward keeps a device busy without
PADDING = {"slots": -1, "penalised": -1}  # of other arrays it is 0
# Filters sort all logits of a row; what they are given changes what is launched.
UNCAPTURED = {"top_k", "top_p", "min_p"}
Step = Callable[[Batch], Float32[Tensor, "k w"]]


@dataclass(frozen=True, slots=True)
class Bucket:
    """The sizes that a graph is captured for, and what is asked of the rows it samples."""

    rows: int
    spans: int
    widest: int
    pages: int
    wanted: int
    names: tuple[str, ...]
    reading: Reading


@dataclass(frozen=True, slots=True)
class Captured:
    """A graph, where it reads and where it leaves its answer."""

    graph: torch.cuda.CUDAGraph
    arena: Arena
    answer: Float32[Tensor, "k w"]
    received: Float32[Tensor, "k w"]


class Graphs:
    """Graphs of `step`, one for each bucket, captured when a bucket is met for the second time; never, if not `captures`.

    A forward that is not captured is padded like one that is: results are the same bits, whatever was run before.
    """

    def __init__(self, step: Step, target: Target, *, captures: bool) -> None:
        self._step, self._target, self._captures = step, target, captures
        self._met: set[Bucket] = set()
        self._captured: dict[Bucket, Captured] = {}
        self._pool: Any = torch.cuda.graph_pool_handle() if captures else None

    @property
    def count(self) -> int:
        """How many graphs there are."""
        return len(self._captured)

    def run(self, gathered: Gathered) -> Float32[Tensor, "k w"] | None:
        """The answer for what was gathered, on the host; None for forwards that are not padded."""
        arrays = gathered.arrays
        wanted, rows = len(arrays["wanted"]), len(arrays["tokens"])
        if not wanted or rows > MOST_ROWS or UNCAPTURED & arrays.keys():
            return None
        bucket = bucket_of(gathered)
        captured = self._captured.get(bucket)
        if captured is None and (bucket not in self._met or not self._captures):
            self._met.add(bucket)
            return self._step(self._filled(bucket, gathered)[1]).cpu()[:, :wanted]
        if captured is None:
            captured = self._captured[bucket] = self._capture(bucket, gathered)
        fill(captured.arena, bucket, gathered, self._target)
        captured.graph.replay()
        captured.received.copy_(captured.answer, non_blocking=True)
        torch.cuda.current_stream(self._target.device).synchronize()
        return captured.received[:, :wanted]

    def _filled(self, bucket: Bucket, gathered: Gathered) -> tuple[Arena, Batch]:
        """Memory of its own for what was gathered, and the batch in it."""
        arena = room_for(bucket, gathered, self._target)
        fill(arena, bucket, gathered, self._target)
        return arena, batch_in(arena, bucket, self._target)

    def _capture(self, bucket: Bucket, gathered: Gathered) -> Captured:
        """Run the step once for what was gathered, then capture it."""
        device = self._target.device
        arena, batch = self._filled(bucket, gathered)
        aside = torch.cuda.Stream(device)
        aside.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(aside):  # what is compiled or allocated on first use is not captured
            self._step(batch)
        torch.cuda.current_stream(device).wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        collects = gc.isenabled()
        gc.disable()  # another graph that is freed meanwhile would spoil this one
        try:
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                answer = self._step(batch)
        finally:
            if collects:
                gc.enable()
        return Captured(graph, arena, answer, torch.empty(answer.shape, dtype=answer.dtype, pin_memory=True))


def room_for(bucket: Bucket, gathered: Gathered, target: Target) -> Arena:
    """Memory for anything that fits into the bucket, as `gathered` does."""
    counts = dict.fromkeys(bucket.names, bucket.wanted) | dict.fromkeys(("tokens", "positions", "slots"), bucket.rows)
    sizes = {name: (gathered.arrays[name].dtype, count) for name, count in counts.items()}
    of_tiles = {_name(view): sum(tile_shape(bucket, view, target).sizes) for view in target.views}
    return Arena(sizes | {name: (np.dtype(np.int32), count) for name, count in of_tiles.items()}, target.device)


def fill(arena: Arena, bucket: Bucket, gathered: Gathered, target: Target) -> None:
    """Send what was gathered, and padding behind it, to where the bucket's graph reads."""
    for name, array in gathered.arrays.items():
        place = arena.hosts[name]
        place[: len(array)] = array
        place[len(array) :] = PADDING.get(name, 0)
    for view in target.views:
        arena.hosts[_name(view)][:] = tile_numbers(gathered.spans[view[0]], tile_shape(bucket, view, target))
    arena.send()


def batch_in(arena: Arena, bucket: Bucket, target: Target) -> Batch:
    """The batch whose arrays lie in the arena, now or later."""
    layouts = {view: tiles_over(arena.tensors[_name(view)], tile_shape(bucket, view, target)) for view in target.views}
    return batch_of(arena.tensors, layouts, bucket.reading, None)


def _name(view: View) -> str:
    return f"tiles {view}"


def rounded(count: int) -> int:
    """`count` rounded up so that at most an eighth is too much, or 15."""
    step = max(16, 1 << max(0, count.bit_length() - 4))
    return -(-count // step) * step


def bucket_of(gathered: Gathered) -> Bucket:
    """The least bucket that has room for all that was gathered."""
    arrays, spans = gathered.arrays, next(iter(gathered.spans.values()))
    pages = -(-int(spans.ends.max()) // spans.page_size)
    count = len(spans.counts)
    return Bucket(
        rows=rounded(len(arrays["tokens"])),
        spans=count if count <= 4 else -(-count // 4) * 4,
        widest=rounded(int(spans.counts.max())),
        pages=1 << (pages - 1).bit_length(),
        # Coarsely: how many are wanted changes from step to step, and few graphs are met often.
        wanted=max(16, 1 << (len(arrays["wanted"]) - 1).bit_length()),
        names=tuple(arrays),
        reading=gathered.reading,
    )


def tile_shape(bucket: Bucket, view: View, target: Target) -> TileShape:
    """Tiles for any spans that fit into the bucket."""
    window, group = view
    tile_rows = rows_of_tile(group, bucket.widest)
    return TileShape(
        rows=bucket.rows,
        spans=bucket.spans,
        pages=bucket.pages,
        tiles=bucket.rows // tile_rows + bucket.spans + 1,  # a span, and the padding, may leave a tile partly empty
        tile_rows=tile_rows,
        page_size=target.page_size,
        windowed=window is not None,
        busy=bucket.spans * -(-bucket.widest // tile_rows),
        longest=bucket.pages * target.page_size,
    )
