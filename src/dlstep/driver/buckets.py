"""Sizes that forwards are padded to, and the arrays of a padded forward."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dlstep_kernels import SamplerConfig, Spans
from dlstep_kernels.tiles import TILE_HEIGHT, TileShape, bucket_shape, tile_numbers, tiles_over

from ..core.soft import Merge
from ..models.networks import Batch
from ..models.networks.batch import View, batch_of
from .arena import Arena
from .lowering import Gathered, Target
from .profile import region

PADDING = {
    "slot_mapping": -1,
    "penalised": -1,
    "named": -1,
    "soft_rows": -1,
    "temperatures": 1,
    "fresh": 1,
}  # of other arrays it is 0
OF_SPANS: tuple[str, ...] = ("found", "left", "fresh")
OF_SOFT: tuple[str, ...] = ("soft_ids", "soft_probabilities")  # for each id that a row blends
NARROW = 16  # rows of a span; if one is wider, tiles are as high as they can be
LEAST_ROWS = {NARROW: 8, TILE_HEIGHT: 16}  # of a span, on average: so rows alone say how many spans there can be
FEW_ROWS, FEW_POSITIONS = 256, 1024
MAX_PADDED_ROWS = 8192  # a larger forward keeps a device busy without
Laid = Mapping[int | None, Spans]


@dataclass(frozen=True, slots=True)
class Kind:
    """Facts that forwards of any size share: `names` of arrays, and what is asked of the rows that are sampled.

    `widest` is the most rows of a span, one of two numbers; `named` and `soft` are numbers of ids for each wanted and each
    soft row, 0 where there are none.
    """

    widest: int
    named: int
    soft: int
    names: tuple[str, ...]
    sampler: SamplerConfig
    merge: Merge | None


@dataclass(frozen=True, slots=True)
class Bucket:
    """The sizes that a graph is captured for: of `rows` all may be wanted and soft, and `pages` are those of a request."""

    rows: int
    spans: int
    pages: int
    kind: Kind


def rounded(count: int) -> int:
    """`count` rows rounded up, to as many as tiles of products have, where more would take longer.

    Up to 128 rows cost what 128 do, as weights are read in any case; from 256 on a product has tiles of 64 rows and more.
    """
    if count <= 128:
        return max(16, 1 << (count - 1).bit_length())
    step = 16 if count <= 160 else 32 if count <= 256 else max(64, 1 << ((count - 1).bit_length() - 5))
    return -(-count // step) * step


def row_sizes(most: int) -> list[int]:
    """Every value of `rounded` for up to `most` rows, the largest first."""
    return sorted({rounded(count) for count in range(16, rounded(most) + 1, 16)}, reverse=True)


def kind_of(gathered: Gathered) -> Kind:
    """The kind of a forward."""
    arrays, spans = gathered.arrays, next(iter(gathered.spans.values()))
    widest = int(spans.query_lens.max())
    return Kind(
        widest=NARROW if widest <= NARROW else TILE_HEIGHT,
        named=len(arrays["named"]) // len(arrays["wanted"]) if "named" in arrays else 0,
        soft=len(arrays["soft_ids"]) // len(arrays["soft_rows"]) if "soft_rows" in arrays else 0,
        names=tuple(arrays),
        sampler=gathered.sampler,
        merge=gathered.merge,
    )


def bucket_of(gathered: Gathered, canvas: int) -> Bucket:
    """The least bucket that has room for all that was gathered; spans of a `canvas` have all as many rows, unless that is 0."""
    spans = next(iter(gathered.spans.values()))
    rows, count = len(gathered.arrays["tokens"]), len(spans.query_lens)
    return sized(
        kind_of(gathered), rows, count, int(spans.context_lens.max()), canvas, spans.page_size, spans.block_tables.shape[1]
    )


def sized(kind: Kind, rows: int, spans: int, longest: int, canvas: int, page_size: int, width: int) -> Bucket:
    """The least bucket of this kind for so many rows and spans, the `longest` of which sees so many positions.

    A table holds `width` pages. That there are fewer counts where there are few rows: keys are then divided among programs.
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


def room_for(bucket: Bucket, gathered: Gathered, target: Target) -> Arena:
    """Memory for anything that fits into the bucket, as `gathered` does."""
    kind = bucket.kind
    counts: dict[str, int] = dict.fromkeys(OF_SPANS, bucket.spans) | dict.fromkeys(OF_SOFT, bucket.rows * kind.soft)
    counts["named"] = bucket.rows * kind.named
    sizes = {name: (array.dtype, counts.get(name, bucket.rows)) for name, array in gathered.arrays.items()}
    sizes["filled"] = np.dtype(np.int64), 1
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
        if laid is None or not (laid[view[0]] is spans or _equal(laid[view[0]], spans)):
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
    return batch_of(arena.tensors, layouts, bucket.kind.sampler, bucket.kind.merge)


def _name(view: View) -> str:
    return f"tiles {view}"


def tile_shape(bucket: Bucket, view: View, target: Target) -> TileShape:
    """Tiles for any spans that fit into the bucket."""
    window, group = view
    sizes = {"rows": bucket.rows, "spans": bucket.spans, "widest": bucket.kind.widest, "pages": bucket.pages}
    return bucket_shape(**sizes, group=group, page_size=target.page_size, windowed=window is not None)
