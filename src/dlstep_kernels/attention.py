"""Attention of packed query rows to paged keys and values, under the engine's visibility rule.

A query at position i sees a key at position j iff

    j < end  and  group(j) <= group(i)  and  (window is None  or  j > start(group(i)) - window)

Groups are runs of positions, so a row sees one range, which `visible_range` returns. `lay_out`
computes once per forward pass what all layers share: the slots to read, and who sees what.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from .choice import with_kernel
from .quantization import FP8, LARGEST

OfRows = Int64[np.ndarray, " n"]  # one number for each row
OfSpans = Int64[np.ndarray, " s"]  # one number for each span
Pages = Float[Tensor, "slots kv_heads head_dim"]
MORE_BATCH = 4096  # padded (query, key) pairs that cost as much as another batch


@dataclass(frozen=True, slots=True)
class Spans:
    """Runs of consecutive packed rows, each of one sequence.

    Row r sees positions `[since[r], until[r])` of its sequence, within the context.
    """

    query_lens: OfSpans
    """Number of rows of each span."""
    context_lens: OfSpans
    """Number of readable positions of its sequence."""
    block_tables: Int64[np.ndarray, "s pages"]
    """Pages of its sequence, in order of position; unused past `context_lens`."""
    until: OfRows
    """First position after those that a row sees."""
    since: OfRows | None
    """First position that a row sees; None: 0 for all."""
    page_size: int
    """Positions of a page."""


@dataclass(frozen=True, slots=True)
class AttentionBatch:
    """Spans of similar size as one rectangle of `b` spans, `q` rows and `k` positions.

    Padding repeats a row or slot of the same span, so that nothing is read across sequences.
    """

    rows: Int64[Tensor, " bq"] | None
    """Packed rows of the rectangle; None: all rows in order."""
    slots: Int64[Tensor, " bk"]
    """Slots of its positions."""
    bias: Float[Tensor, "b 1 q k"]
    """0 where a row sees a position, else -inf."""


@dataclass(frozen=True, slots=True)
class AttentionLayout:
    """All rows of a forward pass as batches."""

    batches: tuple[AttentionBatch, ...]
    """The batches."""
    order: Int64[Tensor, " n"] | None
    """Place of each packed row in the concatenated rectangles; None: unchanged."""
    blank: Bool[Tensor, " n"] | None
    """Marks rows that see nothing; None: no such row."""


def visible_range(
    positions: OfRows,
    origins: OfRows,
    sizes: OfRows,
    ends: OfRows,
    *,
    window: int | None = None,
) -> tuple[OfRows | None, OfRows]:
    """Return each row's first visible position (None: 0 for all) and its last one plus 1.

    Args:
        positions: Position of each row.
        origins: Origin of its grid: positions below are group 0.
        sizes: Size of the later groups.
        ends: The row sees positions below this.
        window: Size of the sliding window; None: a full layer.
    """
    starts = positions - (positions - origins) % sizes
    in_front = positions < origins
    until = np.minimum(np.where(in_front, origins, starts + sizes), ends)
    if window is None:
        return None, until
    return np.maximum(np.where(in_front, 0, starts) - window + 1, 0), until


def _similar(counts: OfSpans, ends: OfSpans) -> list[Int64[np.ndarray, " _"] | slice]:
    """Group spans such that padding costs little more than another batch would."""
    widest, deepest = int(counts.max()), int(ends.max())
    if len(counts) * widest * deepest <= int(counts @ ends) + MORE_BATCH:
        return [slice(None)]
    order = np.lexsort((-ends, -counts))
    cuts: list[int] = []
    begin, rows, reach = 0, 0, 0
    for place, (count, end) in enumerate(zip(counts[order].tolist(), ends[order].tolist(), strict=True)):
        size = place - begin
        grown = (size + 1) * max(rows, count) * max(reach, end)
        if size and grown - size * rows * reach - count * end > MORE_BATCH:
            cuts.append(place)
            begin, rows, reach = place, count, end
        else:
            rows, reach = max(rows, count), max(reach, end)
    return list(np.split(order, cuts)) if cuts else [slice(None)]


def lay_out(spans: Spans, *, dtype: torch.dtype, device: torch.device) -> AttentionLayout:
    """Return the layout of some spans, which all layers share.

    Args:
        spans: The spans, with at least one row.
        dtype: Type of the queries.
        device: Device of the queries.
    """
    counts, ends, until = spans.query_lens, spans.context_lens, spans.until
    since = np.zeros_like(until) if spans.since is None else spans.since
    firsts = np.cumsum(counts) - counts
    empty = until <= since
    # A row without keys has no softmax: it reads one key of its span and is zeroed afterwards.
    since, until = np.where(empty, 0, since), np.where(empty, 1, until)
    groups = _similar(counts, ends)
    even = len(groups) == 1 and bool((counts == counts[0]).all())  # one rectangle of all rows in order
    batches: list[AttentionBatch] = []
    places = np.empty_like(counts)
    offset = 0
    for group in groups:
        heights, reach = counts[group, None], ends[group]
        column, position = np.arange(heights.max()), np.arange(max(1, reach.max()))
        rows = firsts[group, None] + np.where(column < heights, column, 0)
        hidden = (position < since[rows, None]) | (position >= until[rows, None])
        bias = torch.zeros((len(rows), 1, len(column), len(position)), dtype=dtype, device=device)
        bias.masked_fill_(_tensor(hidden[:, None], device), float("-inf"))
        slots = _slots(spans.block_tables[group], reach, len(position), spans.page_size)
        batches.append(AttentionBatch(None if even else _tensor(rows.ravel(), device), _tensor(slots.ravel(), device), bias))
        places[group] = np.arange(offset, offset + rows.size, len(column))
        offset += rows.size
    order = None if even else _tensor(np.repeat(places - firsts, counts) + np.arange(len(until)), device)
    return AttentionLayout(tuple(batches), order, _tensor(empty, device) if empty.any() else None)


def _tensor(array: np.ndarray, device: torch.device) -> Tensor:
    return torch.from_numpy(array).to(device)


def _slots(
    tables: Int64[np.ndarray, "b pages"], ends: Int64[np.ndarray, " b"], k: int, page_size: int
) -> Int64[np.ndarray, "b k"]:
    """Return the slots of each span's first `k` positions; padding repeats its first slot."""
    first_of_page = tables[:, : -(-k // page_size)] * page_size
    slots = (first_of_page[:, :, None] + np.arange(page_size)).reshape(len(tables), -1)[:, :k]
    return np.where(np.arange(k) < ends[:, None], slots, slots[:, :1])


def paged_attention(
    queries: Float[Tensor, "n heads head_dim"],
    key_pages: Pages,
    value_pages: Pages,
    layout: AttentionLayout,
    *,
    scale: float,
) -> Float[Tensor, "n heads head_dim"]:
    """Return the attention output of each packed row; a row that sees nothing returns zeros.

    The output is the mean of visible values weighted by softmax(scale * query @ key). Head h reads
    key and value head `h // (heads // kv_heads)`.

    Args:
        queries: Queries of each packed row.
        key_pages: Key slots of one layer, page after page.
        value_pages: Value slots of one layer, page after page.
        layout: What each row sees.
        scale: Factor of the scores.
    """
    heads, head_dim = queries.shape[1:]
    kv_heads = key_pages.shape[1]
    outputs: list[Tensor] = []
    for batch in layout.batches:
        b, _, q, k = batch.bias.shape
        picked = queries if batch.rows is None else queries.index_select(0, batch.rows)
        keys = key_pages.index_select(0, batch.slots).to(queries.dtype).view(b, k, kv_heads, head_dim)
        values = value_pages.index_select(0, batch.slots).to(queries.dtype).view(b, k, kv_heads, head_dim)
        output = scaled_dot_product_attention(
            picked.reshape(b, q, heads, head_dim).transpose(1, 2),
            keys.transpose(1, 2),
            values.transpose(1, 2),
            attn_mask=batch.bias,
            scale=scale,
            enable_gqa=heads != kv_heads,
        )
        outputs.append(output.transpose(1, 2).reshape(b * q, heads, head_dim))
    read = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
    if layout.order is not None:
        read = read.index_select(0, layout.order)
    return read if layout.blank is None else read.masked_fill(layout.blank[:, None, None], 0.0)


@with_kernel("attention")
def store_kv(
    keys: Float[Tensor, "n kv_heads head_dim"],
    values: Float[Tensor, "n kv_heads head_dim"],
    key_pages: Pages,
    value_pages: Pages,
    slots: Int64[Tensor, " n"],
) -> None:
    """Write keys and values to slots of the pages, in place. For FP8 pages, clamp numbers to their range.

    A slot is `page * page_size + offset`. The last slot is scratch, which belongs to no page; its
    content is undefined.

    Args:
        keys: Keys of each row.
        values: Values of each row.
        key_pages: Key slots of one layer.
        value_pages: Value slots of one layer.
        slots: Slot of each row; -1: the row is not stored. All others must be distinct.
    """
    # Index -1 is the last slot, the scratch slot, so unstored rows need no mask.
    for pages, rows in ((key_pages, keys), (value_pages, values)):
        if pages.dtype == FP8:  # torch 2.11 converts numbers beyond 448 to NaN
            rows = rows.clamp(-LARGEST, LARGEST)
        pages[slots] = rows.to(pages.dtype)
