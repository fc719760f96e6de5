"""The choice of experts against the router of transformers."""

import torch
from hypothesis import given, strategies as st
from transformers import Glm4MoeConfig
from transformers.models.glm4_moe.modeling_glm4_moe import Glm4MoeTopkRouter

from dlstep_kernels import routing as twin

from ...helpers.routing_checks import GROUPINGS
from ...helpers.sampling_checks import DTYPES
from ...helpers.triton_interpreter import needs_interpreter
from .profiles import up_to

pytestmark = needs_interpreter


def router_of(experts, width, grouping, count, normalised):
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
def test_the_twin_equals_the_class(seed, rows, grouping, size, count, dtype, normalised):
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
