"""Attention layouts for kernels: tiles of query rows in int32, with sizes known in advance.

A tile is a run of packed rows of one span; its keys and values are read once for all its rows and
all query heads of a group. All numbers of a forward pass are in one array, copied to the device at
once, into fixed memory if a captured graph reads it there.
"""

from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
import torch
from jaxtyping import Float, Int32
from torch import Tensor

from .attention import Pages, Spans
from .choice import with_kernel

TILE_HEIGHT = 128  # maximum (row, query head of one group) pairs of a tile


@dataclass(frozen=True, slots=True)
class TileShape:
    """The sizes for which memory is allocated and a kernel is compiled and launched."""

    rows: int
    """Number of rows."""
    spans: int
    """Maximum number of spans."""
    pages: int
    """Maximum number of pages of a span."""
    tiles: int
    """Number of tiles."""
    tile_rows: int
    """Maximum number of rows of a tile."""
    page_size: int
    """Positions of a page."""
    windowed: bool
    """Whether rows have a first visible position other than 0."""
    busy: int
    """Number of full tiles if all rows are used."""
    longest: int
    """Maximum number of positions that a row sees, by which work is divided."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the number of elements of each part, in the order of the fields of `Tiles`."""
        return (*[self.tiles] * 6, self.spans * self.pages, self.rows, self.rows if self.windowed else 0)


@dataclass(frozen=True, slots=True)
class Tiles:
    """Tile t has rows `first_rows[t]` to `first_rows[t] + counts[t]`, on pages `tables[spans[t]]`.

    Row r sees positions `[since[r], until[r])`.
    """

    first_rows: Int32[Tensor, " t"]
    """First row of each tile."""
    counts: Int32[Tensor, " t"]
    """Number of rows of each tile; 0: padding."""
    spans: Int32[Tensor, " t"]
    """Span of each tile."""
    begins: Int32[Tensor, " t"]
    """No row of the tile sees a position before this."""
    ends: Int32[Tensor, " t"]
    """No row of the tile sees this position or a later one."""
    clear: Int32[Tensor, " t"]
    """Without a window, rows of the tile that see anything see everything below this."""
    tables: Int32[Tensor, "s pages"]
    """Pages of each span, in order of position."""
    until: Int32[Tensor, " n"]
    """First position after those that a row sees."""
    since: Int32[Tensor, " n"] | None
    """First position that a row sees; None: 0 for all."""
    shape: TileShape
    """Sizes of all parts."""


def rows_of_tile(group: int, widest: int) -> int:
    """Return the rows per tile for `group` query heads per key head, at most `widest`."""
    return max(1, min(TILE_HEIGHT // group, widest))


def exact_shape(spans: Spans, *, group: int) -> TileShape:
    """Return the shape for exactly these spans.

    Args:
        spans: The spans.
        group: Number of query heads per key head.
    """
    tile_rows = rows_of_tile(group, int(spans.query_lens.max()))
    tiles = int((-(-spans.query_lens // tile_rows)).sum())
    longest = int(spans.context_lens.max())
    return TileShape(
        rows=len(spans.until),
        spans=len(spans.query_lens),
        pages=max(1, -(-longest // spans.page_size)),
        tiles=tiles,
        tile_rows=tile_rows,
        page_size=spans.page_size,
        windowed=spans.since is not None,
        busy=tiles,
        longest=longest,
    )


def bucket_shape(rows: int, spans: int, widest: int, *, group: int, page_size: int, pages: int, windowed: bool) -> TileShape:
    """Return the shape for all spans within some limits.

    Args:
        rows: Number of rows in all, padding included.
        spans: Maximum number of spans.
        widest: Maximum number of rows of a span.
        group: Number of query heads per key head.
        page_size: Positions of a page.
        pages: Maximum number of pages of a span.
        windowed: Whether rows have a first visible position other than 0.
    """
    tile_rows = rows_of_tile(group, widest)
    return TileShape(
        rows=rows,
        spans=spans,
        pages=pages,
        tiles=rows // tile_rows + (spans + 1 if tile_rows > 1 else 0),  # each may end in a partial tile
        tile_rows=tile_rows,
        page_size=page_size,
        windowed=windowed,
        busy=max(1, rows // tile_rows),
        longest=pages * page_size,
    )


def tile_numbers(spans: Spans, shape: TileShape) -> Int32[np.ndarray, " numbers"]:
    """Return all numbers of `Tiles`, concatenated. Rows without a span see nothing, but get tiles.

    Args:
        spans: The spans.
        shape: Sizes of all parts.

    Raises:
        ValueError: If the spans do not fit into the shape.
    """
    counts = spans.query_lens
    rest = shape.rows - len(spans.until)
    reach = -(-int(spans.context_lens.max(initial=0)) // shape.page_size)
    tiled = np.concatenate((counts, (max(rest, 0),)))
    of_span = -(-tiled // shape.tile_rows)
    total = int(of_span.sum())
    windowed = spans.since is not None
    if min(rest, shape.spans - len(counts), shape.pages - reach, shape.tiles - total, shape.windowed - windowed) < 0:
        raise ValueError(
            f"no room for {len(counts)} spans with {len(spans.until)} rows in {total} tiles, {reach} pages, "
            f"{'a' if windowed else 'no'} window: there is {shape}; choose a larger bucket"
        )
    numbers = np.zeros(sum(shape.sizes), dtype=np.int32)
    bounds = pairwise(accumulate(shape.sizes, initial=0))
    first_rows, tile_counts, tile_spans, *ranges, tables, until, since = [numbers[begin:end] for begin, end in bounds]
    owner = np.repeat(np.arange(len(tiled)), of_span)
    within = (np.arange(total) - np.repeat(np.cumsum(of_span) - of_span, of_span)) * shape.tile_rows
    first_rows[:total] = (np.cumsum(tiled) - tiled)[owner] + within
    tile_counts[:total] = np.minimum(tiled[owner] - within, shape.tile_rows)
    tile_spans[:total] = np.where(owner < len(counts), owner, 0)
    tables.reshape(shape.spans, shape.pages)[: len(counts), :reach] = spans.block_tables[:, :reach]
    until[: len(spans.until)] = spans.until
    if spans.since is not None:
        since[: len(spans.until)] = spans.since
    for part, values in zip(ranges, _ranges(first_rows[:total], until, since), strict=True):
        part[:total] = values
    return numbers


def _ranges(
    firsts: Int32[np.ndarray, " t"], until: Int32[np.ndarray, " n"], since: Int32[np.ndarray, " m"]
) -> tuple[Int32[np.ndarray, " t"], ...]:
    """Return `begins`, `ends` and `clear` of each tile."""
    most = np.iinfo(np.int32).max
    if not since.size:  # `until` is never negative, and 0 sees nothing
        ends = np.maximum.reduceat(until, firsts)
        return np.zeros_like(ends), ends, np.minimum(np.minimum.reduceat(np.where(until, until, most), firsts), ends)
    sees = since < until
    ends = np.maximum.reduceat(np.where(sees, until, 0), firsts)
    begins = np.minimum(np.minimum.reduceat(np.where(sees, since, most), firsts), ends)
    return begins, ends, np.minimum(np.minimum.reduceat(np.where(sees, until, most), firsts), ends)


def tiles_over(numbers: Int32[Tensor, " numbers"], shape: TileShape) -> Tiles:
    """Return tiles as views into memory; later writes change them.

    Args:
        numbers: All numbers of the tiles, concatenated.
        shape: Sizes of all parts.
    """
    first_rows, counts, spans, begins, ends, clear, tables, until, since = numbers.split_with_sizes(list(shape.sizes))
    return Tiles(
        first_rows,
        counts,
        spans,
        begins,
        ends,
        clear,
        tables.view(shape.spans, shape.pages),
        until,
        since if shape.windowed else None,
        shape,
    )


def lay_tiles(spans: Spans, *, group: int, device: torch.device) -> Tiles:
    """Return the tiles of some spans.

    Args:
        spans: The spans.
        group: Number of query heads per key head.
        device: Device for the tiles.
    """
    shape = exact_shape(spans, group=group)
    return tiles_over(torch.from_numpy(tile_numbers(spans, shape)).to(device, non_blocking=True), shape)


@with_kernel("attention")
def tiled_attention(
    queries: Float[Tensor, "n heads head_dim"],
    key_pages: Pages,
    value_pages: Pages,
    tiles: Tiles,
    *,
    scale: float,
) -> Float[Tensor, "n heads head_dim"]:
    """Return the attention output of each row, in fp32; zeros if it sees nothing or has no tile.

    The output is the mean of visible values weighted by softmax(scale * query @ key). Head h reads
    key and value head `h // (heads // kv_heads)`.

    Args:
        queries: Queries of each row.
        key_pages: Key slots of one layer, page after page.
        value_pages: Value slots of one layer, page after page.
        tiles: What each row sees.
        scale: Factor of the scores.
    """
    n, heads, head_dim = queries.shape
    kv_heads, page_size = key_pages.shape[1], tiles.shape.page_size
    grouped = queries.float().reshape(n, kv_heads, heads // kv_heads, head_dim)
    answer = torch.zeros_like(grouped)
    since = torch.zeros_like(tiles.until) if tiles.since is None else tiles.since
    for first, count, span in torch.stack((tiles.first_rows, tiles.counts, tiles.spans)).T.tolist():
        rows = slice(first, first + count)
        positions = torch.arange(int(tiles.until[rows].max()) if count else 0, device=queries.device)
        visible = (positions >= since[rows, None]) & (positions < tiles.until[rows, None])
        positions, visible = positions[visible.any(0)], visible[:, visible.any(0)]
        slots = tiles.tables[span, positions // page_size] * page_size + positions % page_size
        scores = scale * torch.einsum("rkgd,jkd->rkgj", grouped[rows], key_pages[slots].float())
        weights = scores.masked_fill(~visible[:, None, None], float("-inf")).softmax(-1)
        weights = weights.masked_fill(~visible.any(1)[:, None, None, None], 0.0)
        answer[rows] = torch.einsum("rkgj,jkd->rkgd", weights, value_pages[slots].float())
    return answer.view(n, heads, head_dim).to(queries.dtype)
