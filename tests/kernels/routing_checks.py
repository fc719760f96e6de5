"""Problems for the choice of experts whose answers do not depend on the order of sums, and what it means to be equal."""

import math

import torch
from torch import Tensor

Choice = tuple[Tensor, Tensor]


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


def assert_same(found: Choice, truth: Choice, *, tolerance: float = 1e-6, others: int = 0) -> None:
    """Choices exactly but for `others` rows, in which ratings may be nearer than rounding; weights within `tolerance`."""
    same = (found[0] == truth[0]).all(1)
    assert int((~same).sum()) <= others
    torch.testing.assert_close(found[1][same], truth[1][same], atol=tolerance, rtol=tolerance, equal_nan=True)
