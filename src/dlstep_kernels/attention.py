"""Attention of packed query rows to paged keys and values, under the engine's visibility rule.

A query at position i sees a key at position j iff

    j < end  and  group(j) <= group(i)  and  (window is None  or  j > start(group(i)) - window)

Groups are runs of positions, so a row sees one range of them, which `visible_range` gives. What does not depend on a layer
(which slots to read, who sees what) is made once a forward by `lay_out` and shared by all layers.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

MORE_BATCH = 4096  # padded (query, key) pairs that cost as much as the calls of one more batch


@dataclass(frozen=True, slots=True)
class Spans:
    """Runs of consecutive packed rows, each of one sequence.

    `counts` are rows of a span, `ends` how many positions of its sequence may be read at all, `tables` its pages in order.
    Row r sees positions `[since[r], until[r])` of its sequence, `until[r] <= end`. Pages past the last one that `end`
    reaches are not looked at.
    """

    counts: Int64[np.ndarray, " s"]
    ends: Int64[np.ndarray, " s"]
    tables: Int64[np.ndarray, "s pages"]
    since: Int64[np.ndarray, " n"]
    until: Int64[np.ndarray, " n"]
    page_size: int


@dataclass(frozen=True, slots=True)
class AttentionBatch:
    """Spans of similar size as one rectangle of `b` spans, `q` rows and `k` positions.

    `rows` are the packed rows [b * q] of the rectangle (None: all rows in their order), `slots` the slots [b * k] of its
    positions, `bias` is 0 where a row sees a position and -inf elsewhere. Padding repeats a row or slot of the same span,
    so that nothing is read across sequences.
    """

    rows: Int64[Tensor, " bq"] | None
    slots: Int64[Tensor, " bk"]
    bias: Float[Tensor, "b 1 q k"]


@dataclass(frozen=True, slots=True)
class AttentionLayout:
    """All rows of a forward as batches.

    `order` is where each packed row lies in the concatenated rectangles (None: in place), `blank` are rows that see nothing
    (None: there are none).
    """

    batches: tuple[AttentionBatch, ...]
    order: Int64[Tensor, " n"] | None
    blank: Bool[Tensor, " n"] | None


def visible_range(
    positions: Int64[np.ndarray, " n"],
    origins: Int64[np.ndarray, " n"],
    sizes: Int64[np.ndarray, " n"],
    ends: Int64[np.ndarray, " n"],
    *,
    window: int | None = None,
) -> tuple[Int64[np.ndarray, " n"], Int64[np.ndarray, " n"]]:
    """First visible position of each row and the one after its last, by the rule above."""
    inside = (positions - origins) % sizes
    starts = np.where(positions < origins, 0, positions - inside)
    until = np.minimum(np.where(positions < origins, origins, positions - inside + sizes), ends)
    since = np.zeros_like(until) if window is None else np.maximum(starts - window + 1, 0)
    return since, until


def _similar(counts: Int64[np.ndarray, " s"], ends: Int64[np.ndarray, " s"]) -> list[Int64[np.ndarray, " _"]]:
    """Numbers of the spans, batched so that padding wastes little more than another batch would cost."""
    useful = int(counts @ ends)
    if len(counts) * int(counts.max()) * int(ends.max()) <= useful + MORE_BATCH:
        return [np.arange(len(counts))]
    order = np.lexsort((-ends, -counts))
    cuts: list[int] = []
    begin, rows, reach = 0, 0, 0
    sorted_spans = zip(counts[order].tolist(), ends[order].tolist(), strict=True)
    for place, (count, end) in enumerate(sorted_spans):
        size = place - begin
        # Rows fall along the order, so only the reach of a batch can still grow.
        grown = (size + 1) * max(rows, count) * max(reach, end)
        if size and grown - size * rows * reach - count * end > MORE_BATCH:
            cuts.append(place)
            begin, rows, reach = place, count, end
        else:
            rows, reach = max(rows, count), max(reach, end)
    return np.split(order, cuts)


def _staged(arrays: list[np.ndarray], device: torch.device) -> tuple[Tensor, ...]:
    """The arrays as flat int64 tensors on the device, by one copy."""
    flat = np.concatenate([array.ravel() for array in arrays])
    return torch.from_numpy(flat).to(device, non_blocking=True).split([array.size for array in arrays])


def lay_out(spans: Spans, *, dtype: torch.dtype, device: torch.device) -> AttentionLayout:
    """The layout of `spans`, for queries of `dtype` on `device`. There must be at least one row."""
    counts, ends = spans.counts, spans.ends
    firsts = np.cumsum(counts) - counts
    since, until = spans.since, spans.until
    empty = until <= since
    blank = None
    if empty.any():
        # A row without keys has no softmax: it reads one key of its own and is blanked afterwards.
        since, until = np.where(empty, 0, since), np.where(empty, 1, until)
        blank = torch.from_numpy(empty).to(device)
    windowed = bool(since.any())
    groups = _similar(counts, ends)
    even = len(groups) == 1 and bool((counts == counts[0]).all())
    arrays: list[np.ndarray] = []
    shapes: list[tuple[int, int, int]] = []
    places = np.empty_like(counts)
    offset = 0
    for group in groups:
        b, q, k = len(group), int(counts[group].max()), max(1, int(ends[group].max()))
        column = np.arange(q)
        rows = firsts[group, None] + np.where(column < counts[group, None], column, 0)
        arrays += [rows, _slots(spans, group, k), until[rows], since[rows]] if windowed else [
            rows, _slots(spans, group, k), until[rows],
        ]  # fmt: skip
        shapes.append((b, q, k))
        places[group] = offset + q * np.arange(b)
        offset += b * q
    if not even:
        arrays.append(np.repeat(places - firsts, counts) + np.arange(len(until)))
    tensors = _staged(arrays, device)
    width = 4 if windowed else 3
    batches = tuple(
        _batch(tensors[width * number : width * (number + 1)], shape, even, dtype) for number, shape in enumerate(shapes)
    )
    return AttentionLayout(batches, None if even else tensors[-1], blank)


def _slots(spans: Spans, group: Int64[np.ndarray, " b"], k: int) -> Int64[np.ndarray, "b k"]:
    """Slots of the first `k` positions of each span; positions past its end repeat its first slot."""
    page_size = spans.page_size
    tables = spans.tables[group, : -(-k // page_size)]
    slots = (tables[:, :, None] * page_size + np.arange(page_size)).reshape(len(group), -1)[:, :k]
    ends = spans.ends[group, None]
    return np.where(np.arange(k) < ends, slots, slots[:, :1])


def _batch(tensors: tuple[Tensor, ...], shape: tuple[int, int, int], even: bool, dtype: torch.dtype) -> AttentionBatch:
    b, q, k = shape
    rows, slots, until = tensors[:3]
    position = torch.arange(k, device=slots.device)
    hidden = position >= until.view(b, 1, q, 1)
    if len(tensors) == 4:
        hidden |= position < tensors[3].view(b, 1, q, 1)
    bias = torch.zeros(hidden.shape, dtype=dtype, device=slots.device).masked_fill_(hidden, float("-inf"))
    return AttentionBatch(None if even else rows, slots, bias)


def paged_attention(
    queries: Float[Tensor, "n heads head_dim"],
    key_pages: Float[Tensor, "slots kv_heads head_dim"],
    value_pages: Float[Tensor, "slots kv_heads head_dim"],
    layout: AttentionLayout,
    *,
    scale: float,
) -> Float[Tensor, "n heads head_dim"]:
    """What each packed row reads: the mean of the values it sees, weighted by softmax(scale * query @ key).

    Head h reads key and value head `h // (heads // kv_heads)`. A row that sees nothing reads zeros.
    """
    heads, head_dim = queries.shape[1:]
    kv_heads = key_pages.shape[1]
    outputs: list[Tensor] = []
    for batch in layout.batches:
        b, _, q, k = batch.bias.shape
        picked = queries if batch.rows is None else queries.index_select(0, batch.rows)
        keys = key_pages.index_select(0, batch.slots).view(b, k, kv_heads, head_dim)
        values = value_pages.index_select(0, batch.slots).view(b, k, kv_heads, head_dim)
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
