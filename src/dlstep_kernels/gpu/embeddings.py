"""Blended embeddings.

Means need no probabilities in memory: they are recomputed per tile for the product. They round
where the twin does: quotients, probabilities and the result to the table's dtype. The softmax
denominator and the product are summed in another order, which may change rounding. Soft inputs take
one program per soft row: its parts are read once and stay in registers.
"""

from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float32
from torch import Tensor

from ..embeddings import SoftRows
from .launch import architecture, compiled_with, divided_up, parameters, power_of_two
from .parts import LOG2E


@triton.jit
@no_type_check
def _divided(x, divisor, inverse):
    """Return x / divisor, exact except in rare cases: a product, corrected by the remainder."""
    quotient = x * inverse
    return tl.fma(tl.fma(-quotient, divisor, x), inverse, quotient)


@triton.jit
@no_type_check
def _scaled(logits, at, temperature, inverse, inside, table):
    """Return quotients, rounded as in the twin."""
    x = tl.load(logits + at, mask=inside, other=float("-inf")).to(tl.float32)
    quotient = tl.where(tl.abs(x) < float("inf"), _divided(x, temperature, inverse), x)
    return quotient.to(table.dtype.element_ty).to(tl.float32)


@triton.jit
@no_type_check
def _normalise(logits, temperatures, table, peaks, totals, stride, vocab, splits, tiles, BLOCK: tl.constexpr):
    """Store the largest quotient of one range of a row, and the sum of exp relative to it."""
    row = tl.program_id(0).to(tl.int64)
    first = tl.program_id(1) * tiles * BLOCK
    place = first + tl.arange(0, BLOCK)
    temperature = tl.load(temperatures + row)
    peak, total = float("-inf"), tl.zeros([BLOCK], tl.float32)
    for _ in range(tiles):
        x = _scaled(logits, row * stride + place, temperature, 1.0 / temperature, place < vocab, table)
        before, peak = peak, tl.maximum(peak, tl.max(x, 0))
        base = tl.where(peak > float("-inf"), peak, 0.0)
        total = total * tl.exp(before - base) + tl.exp2((x - base) * LOG2E)
        place += BLOCK
    part = row * splits + tl.program_id(1)
    tl.store(peaks + part, peak)
    tl.store(totals + part, tl.sum(total, 0))


@triton.jit
@no_type_check
def _blend_tiles(
    logits, temperatures, table, peaks, totals, sums, stride, table_stride, rows, vocab, width, each,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Store the contribution of one range of the vocabulary to some rows' means in some columns."""
    # Neighbouring programs read the same range of logits and embeddings.
    across = tl.cdiv(width, COLUMNS)
    tile = tl.program_id(0) % across
    row = tl.program_id(0) // across * ROWS + tl.arange(0, ROWS)
    column = tile * COLUMNS + tl.arange(0, COLUMNS)
    first = tl.program_id(1) * each
    safe = tl.minimum(row, rows - 1).to(tl.int64)
    temperature, peak = tl.load(temperatures + safe), tl.load(peaks + safe)
    total = tl.load(totals + safe)
    inverse, whole = 1.0 / temperature, 1.0 / total
    mean = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(first, tl.minimum(first + each, vocab), DEPTH):
        place = start + tl.arange(0, DEPTH)
        inside = place < vocab
        at = safe[:, None] * stride + place[None, :]
        x = _scaled(logits, at, temperature[:, None], inverse[:, None], inside[None, :], table)
        weight = tl.exp2((x - peak[:, None]) * LOG2E)
        share = _divided(weight, total[:, None], whole[:, None]).to(table.dtype.element_ty)
        at = table + place.to(tl.int64)[:, None] * table_stride + column[None, :]
        part = tl.load(at, mask=inside[:, None] & (column < width)[None, :], other=0.0)
        mean = tl.dot(share, part, mean, input_precision="ieee")
    at = (tl.program_id(1) * rows + row.to(tl.int64))[:, None] * width + column[None, :]
    tl.store(sums + at, mean, mask=(row < rows)[:, None] & (column < width)[None, :])


def _denominators(
    logits: Float[Tensor, "n vocab"], temperatures: Float32[Tensor, " n"], table: Tensor, name: str
) -> tuple[Float32[Tensor, " n"], Float32[Tensor, " n"]]:
    """Return the largest quotient of each row, and the sum of exponentials relative to it."""
    rows, vocab = logits.shape
    chosen = parameters("normalise", name)
    tiles = divided_up(vocab, chosen["block"])
    each = divided_up(tiles, min(tiles, max(1, chosen["programs"] // rows)))
    splits = divided_up(tiles, each)
    peaks, totals = torch.empty((2, rows, splits), dtype=torch.float32, device=logits.device)
    _normalise[(rows, splits)](
        logits, temperatures, table, peaks, totals, logits.stride(0), vocab, splits, each,
        BLOCK=chosen["block"], **compiled_with(chosen),
    )  # fmt: skip
    peak = peaks.amax(1)
    return peak, (totals * (peaks - peak[:, None]).exp()).sum(1)


def mean_embeddings(
    logits: Float[Tensor, "n vocab"], temperatures: Float32[Tensor, " n"], table: Float[Tensor, "vocab width"]
) -> Float[Tensor, "n width"]:
    """Return the twin's result up to rounding."""
    (rows, vocab), width = logits.shape, table.shape[1]
    if not rows:
        return table.new_empty((0, width))
    logits = logits if logits.stride(1) == 1 else logits.contiguous()
    assert table.stride(1) == 1, "the numbers of an embedding must be contiguous"
    name = f"{architecture(logits.device)}/{table.dtype.itemsize}b"
    peaks, totals = _denominators(logits, temperatures, table, name)
    chosen = parameters("blend_tiles", name)
    blocks = divided_up(rows, chosen["rows"]) * divided_up(width, chosen["columns"])
    tiles = divided_up(vocab, chosen["depth"])
    each = divided_up(tiles, min(tiles, max(1, chosen["programs"] // blocks)))
    ranges = divided_up(tiles, each)
    sums = torch.empty((ranges, rows, width), dtype=torch.float32, device=logits.device)
    _blend_tiles[(blocks, ranges)](
        logits, temperatures, table, peaks, totals, sums, logits.stride(0), table.stride(0), rows, vocab, width,
        each * chosen["depth"], ROWS=chosen["rows"], COLUMNS=chosen["columns"], DEPTH=chosen["depth"],
        **compiled_with(chosen),
    )  # fmt: skip
    return sums.sum(0).to(table.dtype)


@triton.jit
@no_type_check
def _blend_rows(
    merged, table, mask, rows, ids, shares, residuals, weight, width, merged_stride, table_stride,
    COUNT: tl.constexpr, BLOCK: tl.constexpr, ADDED: tl.constexpr, RENORMALIZE: tl.constexpr,
):  # fmt: skip
    number = tl.program_id(0)
    row = tl.load(rows + number)
    if row < 0:
        return
    target = merged + row.to(tl.int64) * merged_stride
    place = tl.arange(0, BLOCK)
    inside = place < width
    blend, norms = tl.zeros([BLOCK], tl.float32), 0.0
    for one in tl.static_range(COUNT):
        share = tl.load(shares + number * COUNT + one)
        source = table + tl.load(ids + number * COUNT + one).to(tl.int64) * table_stride
        part = tl.load(source + place, mask=inside, other=0.0).to(tl.float32)
        blend += share * part
        norms += share * tl.sqrt_rn(tl.sum(part * part, 0))
    if ADDED:
        blend = tl.load(target + place, mask=inside, other=0.0).to(tl.float32) + weight * blend
    else:
        rest = tl.load(residuals + number)
        part = tl.load(mask + place, mask=inside, other=0.0).to(tl.float32)
        blend += rest * part
        if RENORMALIZE:
            norms += rest * tl.sqrt_rn(tl.sum(part * part, 0))
            blend *= norms / tl.maximum(tl.sqrt_rn(tl.sum(blend * blend, 0)), 1e-12)
    tl.store(target + place, blend.to(merged.dtype.element_ty), mask=inside)


def merge_embeddings(
    embedded: Float[Tensor, "n width"], table: Float[Tensor, "vocab width"], mask_id: int, soft: SoftRows
) -> Float[Tensor, "n width"]:
    """Return the twin's result up to the order of fp32 sums; rows must be distinct."""
    merged = embedded.clone(memory_format=torch.contiguous_format)
    count = soft.ids.shape[1]
    if not soft.rows.numel():
        return merged
    assert table.stride(1) == 1, "the numbers of an embedding must be contiguous"
    width = embedded.shape[1]
    chosen = parameters("blend_rows", architecture(embedded.device))
    _blend_rows[(soft.rows.numel(),)](
        merged, table, table[mask_id], soft.rows, soft.ids.contiguous(), soft.probabilities.contiguous(),
        soft.residuals.contiguous(), soft.weight, width, merged.stride(0), table.stride(0),
        COUNT=count, BLOCK=power_of_two(width), ADDED=soft.mode == "iter_smooth_topk",
        RENORMALIZE=soft.renormalize, **compiled_with(chosen),
    )  # fmt: skip
    return merged
