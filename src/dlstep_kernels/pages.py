"""Pages of keys and values: who owns a slot is decided elsewhere."""

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

    A slot is `page * page_size + offset`. The last slot of the pages is scratch, held by no page: its content is
    undefined after any call. Slots other than -1 are distinct.
    """
    # A negative index counts from the end, so that -1 lands in the scratch slot without a look at the numbers.
    key_pages.index_put_((slots,), keys)
    value_pages.index_put_((slots,), values)
