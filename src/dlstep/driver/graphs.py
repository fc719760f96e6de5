"""Forwards in sizes rounded up to buckets, captured as CUDA graphs: launched as one, from memory that stays in place.

What a bucket has too much is padding: rows that are stored nowhere and see nothing, wanted rows whose answer is dropped.
"""

import gc
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from dlstep_kernels import SamplerConfig, Spans
from dlstep_kernels.tiles import TileShape, bucket_shape, tile_numbers, tiles_over

from ..core.soft import Merge
from ..models.networks import Batch, Memory, PagedNetwork
from ..models.networks.batch import View
from .arena import Arena
from .executor import Executor, Packed, Pending, to_host
from .lowering import Gathered, Target, batch_of
from .profile import region

MAX_ROWS = 8192  # a larger forward keeps a device busy without
PADDING = {
    "slot_mapping": -1,
    "penalised": -1,
    "named": -1,
    "soft_rows": -1,
    "temperatures": 1,
    "fresh": 1,
}  # of other arrays it is 0
OF_ROWS = ("tokens", "positions", "slot_mapping")
OF_SPANS = ("found", "left", "fresh")
OF_SOFT = ("soft_rows", "soft_ids", "soft_probabilities", "soft_residuals")  # more than one number of a soft row in two of them
# Filters sort all logits of a row; what they are given changes what is launched.
UNCAPTURED = {"top_k", "top_p", "min_p"}
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
    sampler: SamplerConfig
    merge: Merge | None


@dataclass(frozen=True, slots=True)
class Captured:
    """A graph, where it reads and where it leaves its answer."""

    graph: torch.cuda.CUDAGraph
    arena: Arena
    answer: Packed
    received: Packed


class PaddedExecutor(Executor):
    """Pads forwards that sample to buckets. If it `captures`, buckets met for the second time are captured as graphs.

    A forward that is not captured is padded like one that is: results are the same bits, whatever was run before.
    """

    def __init__(self, network: PagedNetwork, memory: Memory, target: Target, *, captures: bool) -> None:
        super().__init__(network, memory, target)
        self._captures = captures
        self._met: set[Bucket] = set()
        self._captured: dict[Bucket, Captured] = {}
        self._laid: dict[Bucket, Laid] = {}  # what the tiles of captured ones were last made of
        self._pool: Any = torch.cuda.graph_pool_handle() if captures else None

    @property
    def graph_count(self) -> int:
        """How many graphs are captured so far."""
        return len(self._captured)

    @torch.inference_mode()
    def submit(self, gathered: Gathered) -> Pending:
        """Start a forward, padded if it wants something, and not too much, and replayed if it is captured."""
        arrays = gathered.arrays
        if not len(arrays["wanted"]) or len(arrays["tokens"]) > MAX_ROWS or UNCAPTURED & arrays.keys():
            return super().submit(gathered)
        return self._padded(gathered)

    @region("padded")
    def _padded(self, gathered: Gathered) -> Pending:
        wanted = len(gathered.arrays["wanted"])
        bucket = bucket_of(gathered, self._network)
        self.padding += bucket.rows - len(gathered.arrays["tokens"])
        captured = self._captured.get(bucket)
        if captured is None and (bucket not in self._met or not self._captures):
            self._met.add(bucket)
            return to_host(self._answer(self._filled(bucket, gathered)[1])[:, :wanted])
        if captured is None:
            captured = self._captured[bucket] = self._capture(bucket, gathered)
        fill(captured.arena, bucket, gathered, self._target, self._laid.pop(bucket, None))
        self._laid[bucket] = gathered.spans
        captured.graph.replay()
        pending = to_host(captured.answer, captured.received)
        return Pending(captured.received[:, :wanted], pending.copied)

    def _answer(self, batch: Batch) -> Packed:
        answer = self._step(batch)
        assert answer is not None, "only forwards that sample are padded"
        return answer

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
            self._answer(batch)
        torch.cuda.current_stream(device).wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        collects = gc.isenabled()
        gc.disable()  # another graph that is freed meanwhile would spoil this one
        try:
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                answer = self._answer(batch)
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
    pairs = [(first.until, second.until), (first.context_lens, second.context_lens), (first.query_lens, second.query_lens)]
    pairs.append((first.block_tables, second.block_tables))
    if first.since is not None and second.since is not None:
        pairs.append((first.since, second.since))
    return all(np.array_equal(one, other) for one, other in pairs)


def batch_in(arena: Arena, bucket: Bucket, target: Target) -> Batch:
    """The batch whose arrays lie in the arena, now or later."""
    layouts = {view: tiles_over(arena.tensors[_name(view)], tile_shape(bucket, view, target)) for view in target.views}
    return batch_of(arena.tensors, layouts, bucket.sampler, bucket.merge)


def _name(view: View) -> str:
    return f"tiles {view}"


def rounded(count: int) -> int:
    """`count` rounded up so that at most a thirty-second is too much, or 15."""
    step = max(16, 1 << max(0, count.bit_length() - 6))
    return -(-count // step) * step


def bucket_of(gathered: Gathered, network: PagedNetwork) -> Bucket:
    """The least bucket that has room for all that was gathered."""
    canvas = network.canvas_length
    arrays, spans = gathered.arrays, next(iter(gathered.spans.values()))
    pages = -(-int(spans.context_lens.max()) // spans.page_size)
    count = len(spans.query_lens)
    count = count if count <= 8 else -(-count // 4) * 4
    rows = count * canvas or rounded(len(arrays["tokens"]))
    # Coarsely: how many there are changes from step to step, and few graphs are met often.
    coarse = {name: max(16, 1 << (len(arrays[name]) - 1).bit_length()) for name in ("wanted", "soft_rows") if name in arrays}
    return Bucket(
        rows=rows,
        spans=count,
        widest=canvas or rounded(int(spans.query_lens.max())),
        pages=1 << (pages - 1).bit_length(),
        # Where padding costs nothing, what is wanted needs no bucket of its own.
        wanted=rows if canvas or network.draws_itself else coarse["wanted"],
        soft=coarse.get("soft_rows", 0),
        named=len(arrays["named"]) // len(arrays["wanted"]) if "named" in arrays else 0,
        names=tuple(arrays),
        sampler=gathered.sampler,
        merge=gathered.merge,
    )


def tile_shape(bucket: Bucket, view: View, target: Target) -> TileShape:
    """Tiles for any spans that fit into the bucket."""
    window, group = view
    sizes = {"rows": bucket.rows, "spans": bucket.spans, "widest": bucket.widest, "pages": bucket.pages}
    return bucket_shape(**sizes, group=group, page_size=target.page_size, windowed=window is not None)
