"""Forwards captured as CUDA graphs: launched as one, from memory that stays in place, for sizes rounded up to buckets.

What a bucket has too much is padding: rows that are stored nowhere and see nothing, wanted rows whose answer is dropped.
"""

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor

from dlstep_kernels import Reading, Spans
from dlstep_kernels.tiles import TileShape, bucket_shape, tile_numbers, tiles_over

from ..core.soft import Merge
from .arena import Arena
from .lowering import Batch, Gathered, Target, View, batch_of
from .profile import region

MOST_ROWS = 8192  # a larger forward keeps a device busy without
PADDING = {"slots": -1, "penalised": -1, "named": -1, "soft_rows": -1, "temperatures": 1, "fresh": 1}  # of other arrays it is 0
OF_ROWS = ("tokens", "positions", "slots")
OF_SPANS = ("found", "left", "fresh")
OF_SOFT = ("soft_rows", "soft_ids", "soft_probabilities", "soft_residuals")  # more than one number of a soft row in two of them
# Filters sort all logits of a row; what they are given changes what is launched.
UNCAPTURED = {"top_k", "top_p", "min_p"}
Step = Callable[[Batch], Float32[Tensor, "k w"]]
Laid = Mapping[int | None, Spans]


@dataclass(frozen=True, slots=True)
class Bucket:
    """The sizes that a graph is captured for, and what is asked of the rows it samples."""

    rows: int
    spans: int
    widest: int
    pages: int
    wanted: int
    soft: int
    named: int
    names: tuple[str, ...]
    reading: Reading
    merge: Merge | None


@dataclass(frozen=True, slots=True)
class Sizes:
    """Rules for buckets: rows come in canvases of `canvas` (0: as they come), and if `counted` what is wanted beyond
    the real count costs nothing, so that it needs no bucket of its own.
    """

    canvas: int = 0
    counted: bool = False


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

    def __init__(self, step: Step, target: Target, sizes: Sizes, *, captures: bool) -> None:
        self._step, self._target, self._sizes, self._captures = step, target, sizes, captures
        self._met: set[Bucket] = set()
        self._captured: dict[Bucket, Captured] = {}
        self._laid: dict[Bucket, Laid] = {}  # what the tiles of captured ones were last made of
        self.padding = 0  # rows that forwards had too much, so far
        self._pool: Any = torch.cuda.graph_pool_handle() if captures else None

    @property
    def count(self) -> int:
        """How many graphs there are."""
        return len(self._captured)

    def takes(self, gathered: Gathered) -> bool:
        """Whether a forward is padded and captured: it must want something, and not too much."""
        arrays = gathered.arrays
        return len(arrays["wanted"]) > 0 and len(arrays["tokens"]) <= MOST_ROWS and not UNCAPTURED & arrays.keys()

    @region("padded")
    def run(self, gathered: Gathered) -> Float32[Tensor, "k w"]:
        """The answer for what was gathered, on the host."""
        wanted = len(gathered.arrays["wanted"])
        bucket = bucket_of(gathered, self._sizes)
        self.padding += bucket.rows - len(gathered.arrays["tokens"])
        captured = self._captured.get(bucket)
        if captured is None and (bucket not in self._met or not self._captures):
            self._met.add(bucket)
            return self._step(self._filled(bucket, gathered)[1]).cpu()[:, :wanted]
        if captured is None:
            captured = self._captured[bucket] = self._capture(bucket, gathered)
        fill(captured.arena, bucket, gathered, self._target, self._laid.pop(bucket, None))
        self._laid[bucket] = gathered.spans
        captured.graph.replay()
        captured.received.copy_(captured.answer, non_blocking=True)
        torch.cuda.current_stream(self._target.device).synchronize()
        return captured.received[:, :wanted]

    def _filled(self, bucket: Bucket, gathered: Gathered) -> tuple[Arena, Batch]:
        """Memory of its own for what was gathered, and the batch in it."""
        arena = room_for(bucket, gathered, self._target)
        fill(arena, bucket, gathered, self._target)
        return arena, batch_in(arena, bucket, self._target)

    @region("capture")
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
    arrays = gathered.arrays
    counts = dict.fromkeys(bucket.names, bucket.wanted)
    counts |= dict.fromkeys(OF_ROWS, bucket.rows)
    if bucket.named:
        counts["named"] = bucket.wanted * bucket.named
    counts |= {name: bucket.spans for name in OF_SPANS if name in arrays}
    counts |= {name: bucket.soft * (len(arrays[name]) // len(arrays["soft_rows"])) for name in OF_SOFT if name in arrays}
    sizes = {name: (arrays[name].dtype, count) for name, count in counts.items()} | {"filled": (np.dtype(np.int64), 1)}
    of_tiles = {_name(view): sum(tile_shape(bucket, view, target).sizes) for view in target.views}
    return Arena(sizes | {name: (np.dtype(np.int32), count) for name, count in of_tiles.items()}, target.device)


@region("fill")
def fill(arena: Arena, bucket: Bucket, gathered: Gathered, target: Target, laid: Laid | None = None) -> None:
    """Send what was gathered, and padding behind it, to where the bucket's graph reads.

    What rows see changes when a block opens or ends, which is in few steps: tiles of the same spans, those that `laid` holds,
    are left as they are.
    """
    for name, array in gathered.arrays.items():
        place = arena.hosts[name]
        place[: len(array)] = array
        place[len(array) :] = PADDING.get(name, 0)
    arena.hosts["filled"][0] = len(gathered.arrays["wanted"])
    for view in target.views:
        spans = gathered.spans[view[0]]
        if laid is None or not _equal(laid[view[0]], spans):
            arena.hosts[_name(view)][:] = tile_numbers(spans, tile_shape(bucket, view, target))
    arena.send()


def _equal(first: Spans, second: Spans) -> bool:
    """Whether rows see the same, on the same pages."""
    pairs = [(first.until, second.until), (first.ends, second.ends), (first.counts, second.counts)]
    pairs.append((first.tables, second.tables))
    if first.since is not None and second.since is not None:
        pairs.append((first.since, second.since))
    return all(np.array_equal(one, other) for one, other in pairs)


def batch_in(arena: Arena, bucket: Bucket, target: Target) -> Batch:
    """The batch whose arrays lie in the arena, now or later."""
    layouts = {view: tiles_over(arena.tensors[_name(view)], tile_shape(bucket, view, target)) for view in target.views}
    return batch_of(arena.tensors, layouts, bucket.reading, bucket.merge)


def _name(view: View) -> str:
    return f"tiles {view}"


def rounded(count: int) -> int:
    """`count` rounded up so that at most a thirty-second is too much, or 15."""
    step = max(16, 1 << max(0, count.bit_length() - 6))
    return -(-count // step) * step


def bucket_of(gathered: Gathered, sizes: Sizes) -> Bucket:
    """The least bucket that has room for all that was gathered."""
    arrays, spans = gathered.arrays, next(iter(gathered.spans.values()))
    pages = -(-int(spans.ends.max()) // spans.page_size)
    count = len(spans.counts)
    count = count if count <= 8 else -(-count // 4) * 4
    rows = count * sizes.canvas or rounded(len(arrays["tokens"]))
    # Coarsely: how many there are changes from step to step, and few graphs are met often.
    coarse = {name: max(16, 1 << (len(arrays[name]) - 1).bit_length()) for name in ("wanted", "soft_rows") if name in arrays}
    return Bucket(
        rows=rows,
        spans=count,
        widest=sizes.canvas or rounded(int(spans.counts.max())),
        pages=1 << (pages - 1).bit_length(),
        wanted=rows if sizes.canvas or sizes.counted else coarse["wanted"],
        soft=coarse.get("soft_rows", 0),
        named=len(arrays["named"]) // len(arrays["wanted"]) if "named" in arrays else 0,
        names=tuple(arrays),
        reading=gathered.reading,
        merge=gathered.merge,
    )


def tile_shape(bucket: Bucket, view: View, target: Target) -> TileShape:
    """Tiles for any spans that fit into the bucket."""
    window, group = view
    sizes = {"rows": bucket.rows, "spans": bucket.spans, "widest": bucket.widest, "pages": bucket.pages}
    return bucket_shape(**sizes, group=group, page_size=target.page_size, windowed=window is not None)
