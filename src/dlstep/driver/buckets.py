"""Bucket sizes that forward passes are padded to, and the arrays of a padded forward pass."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dlstep_kernels import SamplerConfig, Spans
from dlstep_kernels.tiles import TILE_HEIGHT, TileShape, bucket_shape, tile_numbers, tiles_over

from ..models.networks import Batch, View, batch_of
from .arena import Arena
from .lowering import Gathered, LoweringTarget
from .profile import region

PADDING = {
    "slot_mapping": -1,
    "penalised": -1,
    "scored_ids": -1,
    "soft_rows": -1,
    "temperatures": 1,
    "fresh": 1,
}  # other arrays are padded with 0
OF_SPANS: tuple[str, ...] = ("found", "left", "fresh")  # arrays with one entry per span
OF_SOFT: tuple[str, ...] = ("soft_ids", "soft_probabilities")  # arrays with an entry per blended id
NARROW = 16  # rows of a span; if one has more, tiles have the maximum height
LEAST_ROWS = {NARROW: 8, TILE_HEIGHT: 16}  # assumed mean rows of a span, to bound the spans
FEW_ROWS, FEW_POSITIONS = 256, 1024
MAX_PADDED_ROWS = 8192  # larger forward passes keep the device busy without graphs
Laid = Mapping[int | None, Spans]  # the spans that tiles were laid for, by sliding window


@dataclass(frozen=True, slots=True)
class Kind:
    """Properties that forward passes of any size share: `names` of arrays and sampler.

    `widest` is the maximum number of rows of a span, NARROW or TILE_HEIGHT. `scored` and `soft` are
    the numbers of ids per sampled row and per soft row; 0 if there are none. `masked`: some positions have token masks.
    """

    widest: int
    scored: int
    soft: int
    names: tuple[str, ...]
    sampler: SamplerConfig
    masked: bool = False


@dataclass(frozen=True, slots=True)
class Bucket:
    """The sizes of a captured graph. All `rows` may be sampled or soft; `pages` is per request."""

    rows: int
    spans: int
    pages: int
    kind: Kind


def rounded(count: int) -> int:
    """Round up a number of rows where padding is nearly free, because of tiles of matrix products.

    Up to 128 rows, reading the weights dominates. From 256 rows on, tiles have 64 rows or more.
    """
    if count <= 128:
        return max(16, 1 << (count - 1).bit_length())
    step = 16 if count <= 160 else 32 if count <= 256 else max(64, 1 << ((count - 1).bit_length() - 5))
    return -(-count // step) * step


def row_sizes(most: int) -> list[int]:
    """Return all values of `rounded` for up to `most` rows, largest first."""
    return sorted({rounded(count) for count in range(16, rounded(most) + 1, 16)}, reverse=True)


def forward_kind(gathered: Gathered) -> Kind:
    """Return the kind of a forward pass."""
    arrays, spans = gathered.arrays, next(iter(gathered.spans.values()))
    widest = max(spans.query_lens.tolist())  # for few numbers, faster than NumPy's
    return Kind(
        widest=NARROW if widest <= NARROW else TILE_HEIGHT,
        scored=len(arrays["scored_ids"]) // len(arrays["sampled_rows"]) if "scored_ids" in arrays else 0,
        soft=len(arrays["soft_ids"]) // len(arrays["soft_rows"]) if "soft_rows" in arrays else 0,
        names=tuple(arrays),
        sampler=gathered.sampler,
        masked=bool(gathered.masked),
    )


def smallest_bucket(gathered: Gathered, canvas: int) -> Bucket:
    """Return the smallest bucket that fits `gathered`. `canvas` is the rows of every span, or 0."""
    spans = next(iter(gathered.spans.values()))
    rows, count = len(gathered.arrays["tokens"]), len(spans.query_lens)
    kind, end = forward_kind(gathered), max(spans.context_lens.tolist())
    return sized(kind, rows, count, end, canvas, spans.page_size, spans.block_tables.shape[1])


def sized(kind: Kind, rows: int, spans: int, longest: int, canvas: int, page_size: int, width: int) -> Bucket:
    """Return the smallest bucket of this kind for these rows and spans.

    `longest` is the largest number of positions that a span sees, `width` the pages of a page
    table. With few rows, few pages make a separate bucket: attention then splits the keys.
    """
    if canvas:
        spans = spans if spans <= 8 else -(-spans // 4) * 4
        rows = spans * canvas
    else:
        least = LEAST_ROWS[kind.widest]
        rows = rounded(max(rows, spans * least))
        spans = rows // least
    few = max(1, FEW_POSITIONS // page_size)
    fits = rows <= FEW_ROWS and longest <= few * page_size and few < width
    return Bucket(rows, spans, few if fits else width, kind)


def room_for(bucket: Bucket, gathered: Gathered, target: LoweringTarget) -> Arena:
    """Return memory for any forward pass of this bucket, with the arrays of `gathered`."""
    kind = bucket.kind
    counts: dict[str, int] = dict.fromkeys(OF_SPANS, bucket.spans) | dict.fromkeys(OF_SOFT, bucket.rows * kind.soft)
    counts["scored_ids"] = bucket.rows * kind.scored
    sizes = {name: (array.dtype, counts.get(name, bucket.rows)) for name, array in gathered.arrays.items()}
    sizes["filled"] = np.dtype(np.int64), 1
    of_tiles = {_name(view): sum(tile_shape(bucket, view, target).sizes) for view in target.views}
    return Arena(sizes | {name: (np.dtype(np.int32), count) for name, count in of_tiles.items()}, target.device)


@region("fill")
def fill(arena: Arena, bucket: Bucket, gathered: Gathered, target: LoweringTarget, laid: Laid | None = None) -> None:
    """Copy `gathered`, followed by padding, into the host memory of `arena`, which the bucket's graph sends to the device.

    Most steps do not change which positions rows see. If the spans equal those of `laid`, the tiles
    in the arena are still valid and are not recomputed.
    """
    for name, array in gathered.arrays.items():
        host = arena.hosts[name]
        host[: len(array)] = array
        host[len(array) :] = PADDING.get(name, 0)
    arena.hosts["filled"][0] = len(gathered.arrays["sampled_rows"])
    for view in target.views:
        spans = gathered.spans[view[0]]
        if laid is None or not (laid[view[0]] is spans or _equal(laid[view[0]], spans)):
            arena.hosts[_name(view)][:] = tile_numbers(spans, tile_shape(bucket, view, target))


def _equal(first: Spans, second: Spans) -> bool:
    """Return whether the rows of `first` and `second` attend to the same positions on the same pages."""
    pairs = [(first.until, second.until), (first.context_lens, second.context_lens), (first.query_lens, second.query_lens)]
    pairs.append((first.block_tables, second.block_tables))
    if first.since is not None and second.since is not None:
        pairs.append((first.since, second.since))
    return all(np.array_equal(one, other) for one, other in pairs)


def batch_in(arena: Arena, bucket: Bucket, target: LoweringTarget) -> Batch:
    """Return a batch of views into the arena; later fills of the arena change the batch."""
    layouts = {view: tiles_over(arena.tensors[_name(view)], tile_shape(bucket, view, target)) for view in target.views}
    return batch_of(arena.tensors, layouts, bucket.kind.sampler)


def _name(view: View) -> str:
    return f"tiles {view}"


def tile_shape(bucket: Bucket, view: View, target: LoweringTarget) -> TileShape:
    """Return the tile shape for any spans that fit into the bucket."""
    window, group = view
    sizes = {"rows": bucket.rows, "spans": bucket.spans, "widest": bucket.kind.widest, "pages": bucket.pages}
    return bucket_shape(**sizes, group=group, page_size=target.page_size, windowed=window is not None)
