"""Choose experts and their weights: the best experts of the best groups."""

import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor
from torch.nn.functional import linear

from .choice import with_kernel


def _suits(hidden: Tensor, weight: Tensor, *others: object, **options: object) -> bool:
    del others, options
    return hidden.dtype == weight.dtype and weight.stride(1) == 1


@with_kernel("routing", suits=_suits)
def choose_experts(
    hidden: Float[Tensor, "n width"],
    weight: Float[Tensor, "experts width"],
    bias: Float[Tensor, " experts"],
    *,
    groups: int,
    kept_groups: int,
    count: int,
    normalised: bool,
    scale: float,
) -> tuple[Int64[Tensor, "n count"], Float32[Tensor, "n count"]]:
    """Return the best-rated experts of each row, best first, and their weights, all computed in fp32.

    Scores are sigmoid(hidden @ weight.T); ratings are scores + bias. Weights are scores times
    `scale`. Ties go to the lowest number; NaN ranks above all numbers.

    Args:
        hidden: Hidden state of each row.
        weight: Weight of the router.
        bias: Added to the score of each expert to rate it.
        groups: Number of groups of equal size that the experts form.
        kept_groups: How many groups to use: those with the largest sums of their two best ratings.
        count: How many experts to choose.
        normalised: Divide the weights of a row by their sum.
        scale: Factor of all weights.
    """
    scores = linear(hidden.float(), weight.float()).sigmoid()
    ratings = scores + bias
    if kept_groups < groups:
        grouped = ratings.unflatten(1, (groups, -1))
        kept = _best(grouped.topk(2).values.sum(2), kept_groups)
        left_out = torch.ones_like(grouped[:, :, 0], dtype=torch.bool).scatter(1, kept, False)
        ratings = grouped.masked_fill(left_out[:, :, None], float("-inf")).flatten(1)
    chosen = _best(ratings, count)
    weights = scores.gather(1, chosen)
    if normalised:
        weights = weights / (weights.sum(1, keepdim=True) + 1e-20)
    return chosen, weights * scale


@with_kernel("routing")
def softmax_experts(
    logits: Float[Tensor, "n experts"], factors: Float[Tensor, " experts"], *, count: int
) -> tuple[Int64[Tensor, "n count"], Float32[Tensor, "n count"]]:
    """Return the experts with the largest logits, best first, and their weights.

    A weight is the softmax over the chosen logits, times the expert's factor. Ties go to the lowest number.

    Args:
        logits: Logits of each row.
        factors: Factor of each expert's weight.
        count: How many experts to choose.
    """
    chosen = _best(logits.float(), count)
    probabilities = logits.softmax(-1, dtype=torch.float32).gather(1, chosen)
    return chosen, probabilities / probabilities.sum(1, keepdim=True) * factors[chosen]


def _best(ratings: Float32[Tensor, "n many"], count: int) -> Int64[Tensor, "n count"]:
    """Return the numbers of the `count` largest; unlike `topk`, ties are in ascending order."""
    return ratings.sort(dim=1, descending=True, stable=True).indices[:, :count]
