"""The choice of experts: the kernels in the interpreter against their twin, and that against the router of transformers."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from ..profiles import up_to

pytest.importorskip("triton", reason="triton is not installed: it exists for Linux only")

from hypothesis import example, given, strategies as st
from transformers import Glm4MoeConfig
from transformers.models.glm4_moe.modeling_glm4_moe import Glm4MoeTopkRouter

from dlstep_kernels import routing as twin
from dlstep_kernels.gpu import routing as kernels

from ....helpers.routing_checks import assert_same, near_ties, problem_of
from ....helpers.sampling_checks import DTYPES, launched
from ....helpers.triton_interpreter import needs_interpreter

pytestmark = needs_interpreter
GROUPINGS = st.sampled_from(((1, 1), (2, 1), (2, 2), (3, 2), (4, 2), (8, 4), (5, 1)))


@pytest.fixture(autouse=True, scope="module")
def quiet_numpy():
    """The interpreter computes with numpy, which warns of what kernels mean to do with infinities and NaN."""
    with np.errstate(all="ignore"):
        yield


@up_to(60)
@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(0, 20),
    width=st.sampled_from((8, 16, 40, 57)),
    grouping=GROUPINGS,
    size=st.integers(2, 9),
    count=st.integers(1, 10),
    dtype=st.sampled_from(DTYPES),
    layout=st.sampled_from(("rows", "padded", "every second", "one row")),
    odd=st.sampled_from((None, math.nan, math.inf, -math.inf)),
    bulk=st.booleans(),
    programs=st.integers(1, 12),
    normalised=st.booleans(),
)
@example(
    seed=0, rows=3, width=16, grouping=(4, 1), size=2, count=8, dtype=torch.float32, layout="rows", odd=None, bulk=False,
    programs=1, normalised=True,
)  # fmt: skip
def test_equals_the_twin(
    seed: int, rows: int, width: int, grouping: tuple[int, int], size: int, count: int, dtype: torch.dtype, layout: str,
    odd: float | None, bulk: bool, programs: int, normalised: bool,
) -> None:  # fmt: skip
    groups, kept = grouping
    hidden, weight, bias = problem_of(seed, rows, groups * size, groups, width, dtype)
    room = torch.full((rows, 2 * width + 3), math.nan, dtype=dtype)
    if layout == "padded":
        hidden = room[:, 1 : 1 + width].copy_(hidden)
    elif layout == "every second":
        hidden = room[:, : 2 * width : 2].copy_(hidden)
    elif layout == "one row":
        hidden = hidden[:1].expand(rows, -1)
    if odd is not None and rows and layout != "one row":
        hidden[-1, 0] = odd
    # More than the kept groups have: -inf is chosen as well, by number.
    options: dict[str, Any] = {"groups": groups, "kept_groups": kept, "count": min(count, groups * size)}
    options |= {"normalised": normalised, "scale": 2.5}
    with launched(kernels, bulk=int(bulk), programs=programs):
        found = kernels.choose_experts(hidden, weight, bias, **options)
    # On a CPU torch rounds the last scores of a tensor in another way, so that equals are none: here they are of other rows.
    chosen, weights = twin.choose_experts(hidden.repeat(32, 1), weight, bias, **options)
    ranking = {name: options[name] for name in ("groups", "kept_groups", "count")}
    assert_same(found, (chosen[:rows], weights[:rows]), near_ties(hidden, weight, bias, **ranking))


def router_of(experts: int, width: int, grouping: tuple[int, int], count: int, normalised: bool) -> Glm4MoeTopkRouter:
    config = Glm4MoeConfig(
        hidden_size=width, n_routed_experts=experts, n_group=grouping[0], topk_group=grouping[1], num_experts_per_tok=count,
        norm_topk_prob=normalised, routed_scaling_factor=2.5,
    )  # fmt: skip
    return Glm4MoeTopkRouter(config)


@up_to(40)
@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(1, 9),
    grouping=GROUPINGS,
    size=st.integers(2, 32),
    count=st.integers(1, 8),
    dtype=st.sampled_from(DTYPES),
    normalised=st.booleans(),
)
@torch.inference_mode()
def test_the_twin_equals_the_class(
    seed: int, rows: int, grouping: tuple[int, int], size: int, count: int, dtype: torch.dtype, normalised: bool
) -> None:
    """Where no two ratings of a row are equal; the class gives its choices in any order."""
    generator = torch.Generator().manual_seed(seed)
    (groups, kept), experts = grouping, grouping[0] * size
    count = min(count, kept * size)
    router = router_of(experts, experts, grouping, count, normalised)
    # Every logit is one number of the weight; no two of a row are equal, in any dtype.
    logits = torch.stack([torch.randperm(experts, generator=generator) for _ in range(rows)]) / 32 - 3.7109375
    router.weight.copy_(torch.cat((logits, torch.zeros(experts, experts)))[:experts].T)
    router.weight = torch.nn.Parameter(router.weight.to(dtype))
    router.e_score_correction_bias.copy_(torch.randint(-1, 2, (experts,), generator=generator))
    hidden = torch.eye(experts, dtype=dtype)[:rows]
    _, weights, chosen = router(hidden)
    found, shares = twin.choose_experts(
        hidden, router.weight, router.e_score_correction_bias, groups=groups, kept_groups=kept, count=count,
        normalised=normalised, scale=2.5,
    )  # fmt: skip
    ratings = router(hidden)[0].sigmoid().gather(1, found) + router.e_score_correction_bias[found]
    assert (ratings.diff(dim=1) < 0).all()
    chosen, order = chosen.sort(1)
    found, own = found.sort(1)
    assert torch.equal(found, chosen)
    torch.testing.assert_close(shares.gather(1, own), weights.gather(1, order), atol=1e-6, rtol=1e-6)


def test_equals_go_by_number() -> None:
    hidden, weight, bias = torch.zeros(2, 16), torch.zeros(12, 16), torch.zeros(12)
    bias[7] = 1.0
    for module in (twin, kernels):
        chosen, weights = module.choose_experts(
            hidden, weight, bias, groups=3, kept_groups=2, count=4, normalised=True, scale=1.0
        )
        assert chosen.tolist() == [[7, 0, 1, 2]] * 2
        assert weights.tolist() == [[0.25] * 4] * 2
