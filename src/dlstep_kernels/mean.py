"""The mean embedding under a row's distribution: a canvas carries it to its next forward pass."""

import torch
from jaxtyping import Float, Float32
from torch import Tensor

from .choice import with_kernel


@with_kernel("mean")
def mean_embeddings(
    logits: Float[Tensor, "n vocab"], temperatures: Float32[Tensor, " n"], table: Float[Tensor, "vocab width"]
) -> Float[Tensor, "n width"]:
    """Return softmax(logits / temperature) @ table. Each of the three operations rounds to the dtype of `table`.

    The softmax is computed in fp32 from the rounded quotients. The matrix product accumulates in fp32.

    Args:
        logits: Logits of each row.
        temperatures: Temperature of each row, above 0.
        table: Embedding of each id.
    """
    scaled = (logits / temperatures[:, None]).to(table.dtype)
    return scaled.softmax(dim=-1, dtype=torch.float32).to(table.dtype) @ table
