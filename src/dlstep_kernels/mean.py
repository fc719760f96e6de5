"""The mean embedding under a row's distribution: what a denoising forward tells the next one."""

import torch
from jaxtyping import Float, Float32
from torch import Tensor

from .choice import with_kernel


@with_kernel("mean")
def mean_embeddings(
    logits: Float[Tensor, "n vocab"], temperatures: Float32[Tensor, " n"], table: Float[Tensor, "vocab width"]
) -> Float[Tensor, "n width"]:
    """softmax(logits / temperature) @ table, rounded to the table's dtype after each of the three operations.

    The softmax itself is computed in fp32 from the rounded quotients, the sums of the product too.
    """
    scaled = (logits / temperatures[:, None]).to(table.dtype)
    return scaled.softmax(dim=-1, dtype=torch.float32).to(table.dtype) @ table
