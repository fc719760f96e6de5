"""Our attention inside the unmodified transformers classes.

All that it needs beside queries, keys and values travels as the keyword argument `paged` of the forward call.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from transformers import AttentionInterface

from dlstep_kernels import AttentionLayout, Tiles, paged_attention, store_kv, tiled_attention

ATTENTION = "dlstep_paged"  # the name under which transformers finds it
# Either, given as mask, keeps transformers from making its own: nothing for each kind of layers, where a class takes that,
# or a tensor of four dimensions, which all others pass on as it is. Nothing reads the latter, which has no memory.
NO_MASKS = {"full_attention": None, "sliding_attention": None}
NO_MASK = torch.empty((1, 1, 1, 1), device="meta")


@dataclass(frozen=True, slots=True)
class PagedContext:
    """Where the forward's rows are stored and what they see: pages of each layer, a slot for each row (-1: not stored), and
    a layout for each width of sliding window, None being full attention, with each number of query heads to a key head.

    Layouts are tiles where kernels read them.
    """

    key_pages: tuple[Float[Tensor, "slots _kv_heads _head_dim"], ...]
    value_pages: tuple[Float[Tensor, "slots _kv_heads _head_dim"], ...]
    slot_mapping: Int64[Tensor, " n"]
    layouts: Mapping[tuple[int | None, int], AttentionLayout | Tiles]


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
    """Store the rows' keys and values, then let every row read what it may see."""
    del attention_mask, others
    layer = int(module.layer_idx)  # pyright: ignore[reportArgumentType]
    key_pages, value_pages = paged.key_pages[layer], paged.value_pages[layer]
    keys, values, queries = key[0].transpose(0, 1), value[0].transpose(0, 1), query[0].transpose(0, 1)
    layout = paged.layouts[sliding_window, queries.shape[1] // keys.shape[1]]
    store_kv(keys, values, key_pages, value_pages, paged.slot_mapping)
    if isinstance(layout, Tiles):
        return tiled_attention(queries, key_pages, value_pages, layout, scale=scaling)[None], None
    return paged_attention(queries, key_pages, value_pages, layout, scale=scaling)[None], None


# It launches kernels of its own, of which there is nothing to compile.
_UNCOMPILED = torch.compiler.disable(attend)


def install() -> None:
    """Make the attention known to transformers; once is enough, more does no harm."""
    AttentionInterface.register(ATTENTION, _UNCOMPILED)
