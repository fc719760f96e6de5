"""Problems for the choice of experts whose answers do not depend on the order of sums, and what it means to be equal."""

import math

import torch
from hypothesis import strategies as st
from torch import Tensor

from .sampling_checks import ROUNDING

Choice = tuple[Tensor, Tensor]
GROUPINGS = st.sampled_from(((1, 1), (2, 1), (2, 2), (3, 2), (4, 2), (8, 4), (5, 1)))


def problem_of(
    seed: int, rows: int, experts: int, groups: int, width: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden states, weight and bias of small integers over powers of two; many ratings of a row are equal.

    No sums of a group are equal but for rounding, except by chance: one summand of logits is less than the distance between
    them, so that none are opposite, and experts of a group have one bias, unless there is one group.
    """
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randint(-2, 3, (rows, width), generator=generator)
    step = 0.5 ** math.ceil(math.log2(width) / 2)  # by which no logit is so large that scores are near one
    weight = torch.randint(-1, 2, (experts, width), generator=generator) * step
    hidden[:, -1], weight[:, -1] = 1, 3 / 8 * step
    different = experts if groups == 1 else groups
    bias = torch.randint(-1, 2, (different,), generator=generator).repeat_interleave(experts // different) / 4
    return hidden.to(dtype), weight.to(dtype), bias


def near_ties(hidden: Tensor, weight: Tensor, bias: Tensor, *, groups: int, kept_groups: int, count: int) -> Tensor:
    """Rows in which two ratings, or sums of two, that something hangs on differ, but by less than what may be rounded.

    A score is at most 1: the kernel's exponential (4 * ROUNDING), sum and quotient, and torch's, move it by 10 * ROUNDING,
    a bias and the sum of two by 4 more; two of them are compared.
    """
    within = 2 * 2 * 14 * ROUNDING
    ratings = (hidden.double() @ weight.double().T).sigmoid() + bias.double()
    near = torch.zeros(len(hidden), dtype=torch.bool, device=hidden.device)
    if kept_groups < groups:
        sums, order = ratings.unflatten(1, (groups, -1)).topk(2).values.sum(2).sort(1, descending=True)
        gap = sums[:, kept_groups - 1] - sums[:, kept_groups]
        near |= (gap > 0) & (gap < within)
        left_out = torch.ones_like(sums, dtype=torch.bool).scatter(1, order[:, :kept_groups], False)
        ratings = ratings.masked_fill(left_out.repeat_interleave(ratings.shape[1] // groups, 1), -math.inf)
    ordered = ratings.sort(1, descending=True).values[:, : count + 1]
    gaps = ordered[:, :-1] - ordered[:, 1:]
    return near | ((gaps > 0) & (gaps < within)).any(1)


def assert_same(found: Choice, truth: Choice, near: Tensor) -> None:
    """Choices exactly but for rows of `near`; weights as far as rounding allows.

    A weight is the quotient of a score and a sum of up to ten, each of which is off by 10 * ROUNDING; both sides add, divide
    and scale.
    """
    tolerance = (2 * 10 + 2 * (10 + 2)) * ROUNDING
    same = (found[0] == truth[0]).all(1)
    assert bool((same | near).all()), f"rows {(~(same | near)).nonzero()[:, 0].tolist()} choose others"
    torch.testing.assert_close(found[1][same], truth[1][same], atol=0.0, rtol=tolerance, equal_nan=True)
