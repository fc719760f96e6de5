"""The choice of experts: the kernels in the interpreter against their twin."""

import math

import torch
from hypothesis import example, given, strategies as st

from dlstep_kernels import routing as twin
from dlstep_kernels.gpu import routing as kernels

from ....helpers.routing_checks import GROUPINGS, assert_same, near_ties, problem_of
from ....helpers.sampling_checks import DTYPES, LAYOUTS, ROUNDING, laid_out, launched
from ....helpers.triton_interpreter import needs_interpreter
from ..profiles import up_to

pytestmark = needs_interpreter


@up_to(60)
@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(0, 20),
    width=st.sampled_from((8, 16, 40, 57)),
    grouping=GROUPINGS,
    size=st.integers(2, 9),
    count=st.integers(1, 10),
    dtype=st.sampled_from(DTYPES),
    layout=st.sampled_from(LAYOUTS),
    odd=st.sampled_from((None, math.nan, math.inf, -math.inf)),
    bulk=st.booleans(),
    programs=st.integers(1, 12),
    normalised=st.booleans(),
)
@example(
    seed=0, rows=3, width=16, grouping=(4, 1), size=2, count=8, dtype=torch.float32, layout="rows", odd=None, bulk=False,
    programs=1, normalised=True,
)  # fmt: skip
def test_equals_the_twin(seed, rows, width, grouping, size, count, dtype, layout, odd, bulk, programs, normalised):
    groups, kept = grouping
    hidden, weight, bias = problem_of(seed, rows, groups * size, groups, width, dtype)
    hidden = laid_out(hidden, layout)
    if odd is not None and rows and layout != "one row":
        hidden[-1, 0] = odd
    # More than the kept groups have: -inf is chosen as well, by number.
    options = {"groups": groups, "kept_groups": kept, "count": min(count, groups * size)}
    options |= {"normalised": normalised, "scale": 2.5}
    with launched(kernels, bulk=int(bulk), programs=programs):
        found = kernels.choose_experts(hidden, weight, bias, **options)
    # On a CPU torch rounds the last scores of a tensor in another way, so that equals are none: here they are of other rows.
    chosen, weights = twin.choose_experts(hidden.repeat(32, 1), weight, bias, **options)
    ranking = {name: options[name] for name in ("groups", "kept_groups", "count")}
    assert_same(found, (chosen[:rows], weights[:rows]), near_ties(hidden, weight, bias, **ranking))


def test_equals_go_by_number():
    hidden, weight, bias = torch.zeros(2, 16), torch.zeros(12, 16), torch.zeros(12)
    bias[7] = 1.0
    for module in (twin, kernels):
        chosen, weights = module.choose_experts(
            hidden, weight, bias, groups=3, kept_groups=2, count=4, normalised=True, scale=1.0
        )
        assert chosen.tolist() == [[7, 0, 1, 2]] * 2
        assert weights.tolist() == [[0.25] * 4] * 2


@up_to(40)
@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(0, 9),
    experts=st.integers(1, 20),
    count=st.integers(1, 9),
    dtype=st.sampled_from(DTYPES),
)
def test_softmax_equals_the_twin(seed, rows, experts, count, dtype):
    """Many logits of a row are equal."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randint(-6, 7, (rows, experts), generator=generator).div(4).to(dtype)
    factors = (torch.rand(experts, generator=generator) + 0.5).to(dtype)
    (chosen, weights), (expected, others) = (
        module.softmax_experts(logits, factors, count=min(count, experts)) for module in (kernels, twin)
    )
    assert torch.equal(chosen, expected)
    torch.testing.assert_close(weights, others, atol=0.0, rtol=40 * ROUNDING)
