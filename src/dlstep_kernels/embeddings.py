"""Embeddings of soft rows, which blend several tokens, and the shares of all tokens in a mean embedding."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor

from .choice import with_kernel
from .sampling import capped

MergeMode = Literal["dmax_topk", "iter_smooth_topk"]


@dataclass(frozen=True, slots=True)
class SoftRows:
    """Soft rows, and what each of them blends."""

    rows: Int64[Tensor, " m"]
    """Index of each soft row; -1: padding."""
    ids: Int64[Tensor, "m k"]
    """Token ids that a row blends."""
    probabilities: Float32[Tensor, "m k"]
    """Weight of each of them."""
    residuals: Float32[Tensor, " m"]
    """Weight of the mask embedding in each row, with `dmax_topk`."""
    mode: MergeMode = "dmax_topk"
    """Formula of `merge_embeddings`."""
    renormalize: bool = True
    """With `dmax_topk`: scale the blend to the mean norm of its parts."""
    weight: float = 1.0
    """With `iter_smooth_topk`: factor of the blend."""


@with_kernel("embeddings")
def merge_embeddings(
    embedded: Float[Tensor, "n width"], table: Float[Tensor, "vocab width"], mask_id: int, soft: SoftRows
) -> Float[Tensor, "n width"]:
    """Return `embedded` with blended soft rows; all other rows stay bitwise equal.

    The mode `dmax_topk` computes `s = sum q_k E[id_k] + r E[mask]`, scaled to the norm `sum q_k
    |E[id_k]| + r |E[mask]|` with `renormalize`. The mode `iter_smooth_topk` computes the row plus
    `weight * sum q_k E[id_k]`. Blended in fp32, rounded once. Source: soft decoding of DMax (2026);
    iteration smoothing of dInfer.

    Args:
        embedded: Embedding of each row.
        table: Embedding of each id, E in the formulas.
        mask_id: Token id of the mask.
        soft: The soft rows.
    """
    kept = soft.rows >= 0
    rows, shares = soft.rows[kept], soft.probabilities[kept, :, None]
    parts = table[soft.ids[kept]].float()
    blend = (shares * parts).sum(1)
    if soft.mode == "iter_smooth_topk":
        blend = embedded[rows].float() + soft.weight * blend
    else:
        rest, masked = soft.residuals[kept, None], table[mask_id].float()
        blend = blend + rest * masked
        if soft.renormalize:
            target = (shares * parts.norm(dim=-1, keepdim=True)).sum(1) + rest * masked.norm()
            blend = blend * (target / blend.norm(dim=-1, keepdim=True).clamp(min=1e-12))
    return torch.index_copy(embedded, 0, rows, blend.to(embedded.dtype))


@with_kernel("embeddings")
def token_shares(
    logits: Float[Tensor, "n vocab"], temperatures: Float32[Tensor, " n"], *, cap: float | None
) -> Float[Tensor, "n vocab"]:
    """Return the probability of each token. Like transformers' DiffusionGemma, round before and after the softmax.

    Args:
        logits: Logits of each row, not capped yet.
        temperatures: Temperature of each row.
        cap: Limit for the logits (see `capped`); None: unlimited.
    """
    scores = (capped(logits, cap) / temperatures[:, None]).to(logits.dtype)
    return scores.softmax(-1, dtype=torch.float32).to(logits.dtype)
