"""Store keys and values into pages, one program per row."""

from typing import no_type_check

import triton
import triton.language as tl
from jaxtyping import Float, Int32, Int64
from torch import Tensor

from .launch import architecture, compiled_with, parameters, power_of_two


@triton.jit
@no_type_check
def _store_rows(
    keys,
    values,
    key_pages,
    value_pages,
    slots,
    key_row,
    key_head,
    key_dim,
    value_row,
    value_head,
    value_dim,
    key_slot,
    key_page_head,
    value_slot,
    value_page_head,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + row).to(tl.int64)
    place = tl.arange(0, BLOCK)
    head = place // HEAD_DIM
    dim = place % HEAD_DIM
    kept = (place < KV_HEADS * HEAD_DIM) & (slot >= 0)
    key = tl.load(keys + row * key_row + head * key_head + dim * key_dim, mask=kept)
    value = tl.load(values + row * value_row + head * value_head + dim * value_dim, mask=kept)
    tl.store(key_pages + slot * key_slot + head * key_page_head + dim, key, mask=kept)
    tl.store(value_pages + slot * value_slot + head * value_page_head + dim, value, mask=kept)


def store_kv(
    keys: Float[Tensor, "n kv_heads head_dim"],
    values: Float[Tensor, "n kv_heads head_dim"],
    key_pages: Float[Tensor, "slots kv_heads head_dim"],
    value_pages: Float[Tensor, "slots kv_heads head_dim"],
    slots: Int64[Tensor, " n"] | Int32[Tensor, " n"],
) -> None:
    """Write row i to slot `slots[i]` in place; -1 is not stored, other slots are untouched.

    The numbers of a head must be contiguous in the pages. Slots other than -1 must be distinct.
    """
    count, kv_heads, head_dim = keys.shape
    if count == 0:
        return
    assert key_pages.stride(2) == value_pages.stride(2) == 1, "the numbers of a head must be contiguous in the pages"
    chosen = parameters("store_kv", architecture(keys.device))
    _store_rows[(count,)](
        keys,
        values,
        key_pages,
        value_pages,
        slots,
        *keys.stride(),
        *values.stride(),
        *key_pages.stride()[:2],
        *value_pages.stride()[:2],
        KV_HEADS=kv_heads,
        HEAD_DIM=head_dim,
        BLOCK=power_of_two(kv_heads * head_dim),
        **compiled_with(chosen),
    )
