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
    """Write keys and values to slots of the pages, in place.

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
    key_pages.index_put_((slots,), keys)
    value_pages.index_put_((slots,), values)
