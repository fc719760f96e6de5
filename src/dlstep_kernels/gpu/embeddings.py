"""Blended embeddings and shares of tokens: one program per row. The parts of a blend are read once and stay in registers."""

import torch
import triton.language as tl
from jaxtyping import Float, Float32
from torch import Tensor
from triton.language import constexpr

from ..embeddings import ADDED, RENORMALIZED, SoftRows
from .launch import architecture, compiled_with, kernel, parameters, power_of_two
from .parts import capped

_ADDED, _RENORMALIZED = constexpr(ADDED), constexpr(RENORMALIZED)
LOWEST = constexpr(-1e38)  # less than any score, and finite, so that differences are not NaN


@kernel
def _blend_rows(
    merged, table, mask, rows, ids, shares, modes, factors, width, merged_stride, table_stride,
    COUNT: constexpr, BLOCK: constexpr,
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
    mode, factor = tl.load(modes + number), tl.load(factors + number)
    if mode == _ADDED:
        blend = tl.load(target + place, mask=inside, other=0.0).to(tl.float32) + factor * blend
    else:
        part = tl.load(mask + place, mask=inside, other=0.0).to(tl.float32)
        blend += factor * part
        if mode == _RENORMALIZED:
            norms += factor * tl.sqrt_rn(tl.sum(part * part, 0))
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
        soft.modes, soft.factors.contiguous(), width, merged.stride(0), table.stride(0),
        COUNT=count, BLOCK=power_of_two(width), **compiled_with(chosen),
    )  # fmt: skip
    return merged


@kernel
def _scores(logits, place, width, cap, inverse):
    """Return capped logits divided by the temperature, rounded like the twin's; -inf from `width` on."""
    x = tl.load(logits + place, mask=place < width, other=0.0)
    scores = (capped(x.to(tl.float32), cap) * inverse).to(x.dtype).to(tl.float32)
    return tl.where(place < width, scores, float("-inf"))


@kernel
def _share_row(logits, temperatures, shares, width, cap, BLOCK: constexpr, GROUP: constexpr):
    """Read a row twice: for the sum of exponentials, and for the shares."""
    row = tl.program_id(0).to(tl.int64)
    inverse = 1.0 / tl.load(temperatures + row)
    logits += row * width
    shares += row * width
    # Each thread has groups of neighbouring numbers, with a maximum and a sum for each group.
    place = (tl.arange(0, BLOCK // GROUP) * GROUP)[:, None] + tl.arange(0, GROUP)[None, :]
    best = tl.full([BLOCK // GROUP], LOWEST, tl.float32)
    total = tl.zeros([BLOCK // GROUP], tl.float32)
    for first in range(0, width, BLOCK):
        scores = _scores(logits, first + place, width, cap, inverse)
        before, best = best, tl.maximum(best, tl.max(scores, 1))
        total = total * tl.exp(before - best) + tl.sum(tl.exp(scores - best[:, None]), 1)
    top = tl.max(best, 0)
    whole = tl.sum(total * tl.exp(best - top), 0)
    for first in range(0, width, BLOCK):
        share = tl.exp(_scores(logits, first + place, width, cap, inverse) - top) / whole
        tl.store(shares + first + place, share.to(shares.dtype.element_ty), mask=first + place < width)


def token_shares(
    logits: Float[Tensor, "n vocab"], temperatures: Float32[Tensor, " n"], *, cap: float | None
) -> Float[Tensor, "n vocab"]:
    """Return the twin's result up to fp32 rounding, which may change the last bit of a share."""
    logits = logits.contiguous()
    shares = torch.empty_like(logits)
    chosen = parameters("share_row", architecture(logits.device))
    _share_row[(len(logits),)](
        logits, temperatures, shares, logits.shape[1], cap,
        BLOCK=chosen["block"], GROUP=16 // logits.itemsize, **compiled_with(chosen),
    )  # fmt: skip
    return shares
