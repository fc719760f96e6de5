"""The choice of experts on a CUDA device, against its twin: what the interpreter shows, and the shapes of models."""

import math

import pytest
import torch
from hypothesis import given, settings, strategies as st

from dlstep_kernels import choose_experts, softmax_experts

from ..helpers.routing_checks import assert_same, near_ties, problem_of
from ..helpers.sampling_checks import DTYPES, ROUNDING

pytestmark = pytest.mark.gpu
LLADA2_MINI = {"groups": 8, "kept_groups": 4, "count": 8, "normalised": True, "scale": 2.5}


# Few shapes, for each is compiled.
@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(0, 700),
    shape=st.sampled_from(((256, 8, 4, 8), (12, 3, 2, 2), (64, 1, 1, 6))),
    width=st.sampled_from((57, 128, 512)),
    dtype=st.sampled_from(DTYPES),
    odd=st.sampled_from((None, math.nan, math.inf)),
)
def test_equals_the_twin(seed, rows, shape, width, dtype, odd):
    """Logits are the same in any order of summation."""
    experts, groups, kept, count = shape
    hidden, weight, bias = (each.cuda() for each in problem_of(seed, rows, experts, groups, width, dtype))
    if odd is not None and rows:
        hidden[-1, 0] = odd
    options = {"groups": groups, "kept_groups": kept, "count": count, "normalised": True, "scale": 2.5}
    found = choose_experts(hidden, weight, bias, **options)
    near = near_ties(hidden, weight, bias, groups=groups, kept_groups=kept, count=count)
    assert_same(found, choose_experts.twin(hidden, weight, bias, **options), near)


def drawn(rows, dtype):
    """Factors are whole eighths and 128ths, so that the sums of 2048 products, below 2**17 of their units, are exact."""
    generator = torch.Generator("cuda").manual_seed(rows)
    hidden = torch.randint(-8, 9, (rows, 2048), device="cuda", generator=generator).div(8).to(dtype)
    weight = torch.randint(-8, 9, (256, 2048), device="cuda", generator=generator).div(128).to(dtype)
    return hidden, weight, torch.randn(256, device="cuda", generator=generator) * 0.05


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("rows", [1, 17, 130, 1040, 4170])
def test_routers_of_models(rows, dtype):
    hidden, weight, bias = drawn(rows, dtype)
    found = choose_experts(hidden, weight, bias, **LLADA2_MINI)
    truth = choose_experts.twin(hidden, weight, bias, **LLADA2_MINI)
    near = near_ties(hidden, weight, bias, groups=8, kept_groups=4, count=8)
    assert int(near.sum()) <= 1 + rows // 50, "too few rows are compared"
    assert_same(found, truth, near)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("rows", [1, 256, 2048])
def test_softmax_routers_of_models(rows, dtype):
    """128 logits of 16 bits, many of which are equal."""
    generator = torch.Generator("cuda").manual_seed(rows)
    logits = torch.randn(rows, 128, device="cuda", generator=generator).bfloat16().to(dtype)
    factors = (torch.rand(128, device="cuda", generator=generator) + 0.5).to(dtype)
    (chosen, weights), (expected, others) = (each(logits, factors, count=8) for each in (softmax_experts, softmax_experts.twin))
    assert torch.equal(chosen, expected)
    torch.testing.assert_close(weights, others, atol=0.0, rtol=40 * ROUNDING)


def test_graphs_answer_the_same_bits_again():
    hidden, weight, bias = drawn(130, torch.bfloat16)
    expected = choose_experts(hidden, weight, bias, **LLADA2_MINI)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = choose_experts(hidden, weight, bias, **LLADA2_MINI)
    for _ in range(3):
        for each in found:
            each.zero_()
        graph.replay()
        assert all(map(torch.equal, found, expected))
