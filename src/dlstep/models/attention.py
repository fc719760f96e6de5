"""Paged attention inside the unmodified transformers classes.

The forward call passes everything besides queries, keys and values as the keyword argument `paged`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from transformers import AttentionInterface

from dlstep_kernels import AttentionLayout, Tiles, paged_attention, store_kv, tiled_attention

ATTENTION = "dlstep_paged"  # the name that is registered with transformers


@dataclass(slots=True)  # frozen, torch 2.11 would guard compiled layers by every tensor below
class PagedContext:
    """Where a forward pass stores keys and values, and what its rows see."""

    key_pages: tuple[Float[Tensor, "slots _kv_heads _head_dim"], ...]
    """Key slots of each layer, page after page."""
    value_pages: tuple[Float[Tensor, "slots _kv_heads _head_dim"], ...]
    """Value slots of each layer, page after page."""
    slot_mapping: Int64[Tensor, " n"]
    """Slot of each row; -1: not stored."""
    layouts: Mapping[tuple[int | None, int], AttentionLayout | Tiles]
    """What rows see, by sliding window (or None) and query heads per key head; tiles if kernels read them."""


def attend(
    module: nn.Module,
    query: Float[Tensor, "1 heads n head_dim"],
    key: Float[Tensor, "1 kv_heads n head_dim"],
    value: Float[Tensor, "1 kv_heads n head_dim"],
    attention_mask: Tensor | None,
    *,
    scaling: float,
    paged: PagedContext,
    sliding_window: int | None = None,
    **others: object,
) -> tuple[Float[Tensor, "1 n heads head_dim"], None]:
    """Store the rows' keys and values, then compute attention of each row over what it sees."""
    del attention_mask, others
    layer = int(module.layer_idx)  # pyright: ignore[reportArgumentType]
    key_pages, value_pages = paged.key_pages[layer], paged.value_pages[layer]
    keys, values, queries = key[0].transpose(0, 1), value[0].transpose(0, 1), query[0].transpose(0, 1)
    layout = paged.layouts[sliding_window, queries.shape[1] // keys.shape[1]]
    store_kv(keys, values, key_pages, value_pages, paged.slot_mapping)
    if isinstance(layout, Tiles):
        return tiled_attention(queries, key_pages, value_pages, layout, scale=scaling)[None], None
    return paged_attention(queries, key_pages, value_pages, layout, scale=scaling)[None], None


# It launches its own kernels, so there is nothing to compile.
_UNCOMPILED = torch.compiler.disable(attend)


def install() -> None:
    """Register the attention with transformers. Calling it again is harmless."""
    AttentionInterface.register(ATTENTION, _UNCOMPILED)
