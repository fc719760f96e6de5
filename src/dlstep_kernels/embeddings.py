"""Embeddings of soft rows, which blend several tokens, and the shares of all tokens in a mean embedding."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor

from .choice import with_kernel
from .sampling import capped

BLENDED, RENORMALIZED, ADDED = range(3)


@dataclass(frozen=True, slots=True)
class SoftRows:
    """Soft rows, and what each of them blends."""

    rows: Int64[Tensor, " m"]
    """Index of each soft row; -1: padding."""
    ids: Int64[Tensor, "m k"]
    """Token ids that a row blends."""
    probabilities: Float32[Tensor, "m k"]
    """Weight of each of them."""
    modes: Int64[Tensor, " m"]
    """Formula of each row: BLENDED, RENORMALIZED or ADDED."""
    factors: Float32[Tensor, " m"]
    """Weight of the mask embedding in each row; of the blend if it is ADDED."""


@with_kernel("embeddings")
def merge_embeddings(
    embedded: Float[Tensor, "n width"], table: Float[Tensor, "vocab width"], mask_id: int, soft: SoftRows
) -> Float[Tensor, "n width"]:
    """Return `embedded` with blended soft rows; all other rows stay bitwise equal.

    BLENDED is `s = sum q_k E[id_k] + f E[mask]`, and RENORMALIZED is `s` scaled to the norm `sum q_k
    |E[id_k]| + f |E[mask]|`. ADDED is the row plus `f * sum q_k E[id_k]`. Blended in fp32, rounded
    once. An id of probability 0 changes no bit. Source: soft decoding of DMax (2026); iteration
    smoothing of dInfer.

    Args:
        embedded: Embedding of each row.
        table: Embedding of each id, E in the formulas.
        mask_id: Token id of the mask.
        soft: The soft rows.
    """
    kept = soft.rows >= 0
    rows, modes, factors = soft.rows[kept], soft.modes[kept, None], soft.factors[kept, None]
    blend, norms = torch.zeros_like(embedded[rows], dtype=torch.float32), torch.zeros_like(factors)
    for ids, shares in zip(soft.ids[kept].T, soft.probabilities[kept].T, strict=True):
        part = table[ids].float()
        blend += shares[:, None] * part
        norms += shares[:, None] * part.norm(dim=-1, keepdim=True)
    masked = table[mask_id].float()
    mixed = blend + factors * masked
    scaled = mixed * ((norms + factors * masked.norm()) / mixed.norm(dim=-1, keepdim=True).clamp(min=1e-12))
    added = embedded[rows].float() + factors * blend
    chosen = torch.where(modes == ADDED, added, torch.where(modes == RENORMALIZED, scaled, mixed))
    return torch.index_copy(embedded, 0, rows, chosen.to(embedded.dtype))


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
