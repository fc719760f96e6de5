"""Write keys and values to pages. The core decides which request owns a slot."""

from jaxtyping import Float, Int64
from torch import Tensor

from .choice import with_kernel


@with_kernel("pages")
def store_kv(
    keys: Float[Tensor, "n kv_heads head_dim"],
    values: Float[Tensor, "n kv_heads head_dim"],
    key_pages: Float[Tensor, "slots kv_heads head_dim"],
    value_pages: Float[Tensor, "slots kv_heads head_dim"],
    slots: Int64[Tensor, " n"],
) -> None:
    """Write row i to slot `slots[i]` of the pages, in place; a row of slot -1 is not stored.

    A slot is `page * page_size + offset`. The last slot is scratch, which belongs to no page; its
    content is undefined. Slots other than -1 must be distinct.
    """
    # Index -1 is the last slot, the scratch slot, so unstored rows need no mask.
    key_pages.index_put_((slots,), keys)
    value_pages.index_put_((slots,), values)
