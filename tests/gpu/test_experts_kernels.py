"""Mixtures of experts on a CUDA device, against their twin, and one run against another."""

from functools import cache

import pytest
import torch

from dlstep_kernels import mix_experts, quantize_rows

pytestmark = pytest.mark.gpu
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
NEAR = {FP32: 1e-5, FP16: 2e-3, BF16: 1e-2}  # of the norm of the difference to that of the truth
SHAPES = {
    "llada2 mini": (256, 2048, 512, 8, "silu"),
    "diffusion gemma": (128, 2816, 704, 8, "gelu_tanh"),
    "tiny": (4, 128, 96, 2, "gelu_tanh"),
    "odd": (5, 100, 33, 3, "silu"),
}


@cache
def stacks(name, dtype):
    experts, width, inner, *_ = SHAPES[name]
    generator = torch.Generator("cuda").manual_seed(1)
    gate_up = torch.empty(experts, 2 * inner, width, device="cuda", dtype=dtype).normal_(0, width**-0.5, generator=generator)
    return gate_up, torch.empty(experts, width, inner, device="cuda", dtype=dtype).normal_(0, inner**-0.5, generator=generator)


def problem(name, rows, dtype, *, skewed=False):
    """Rows, their experts and weights; if skewed, low numbers are chosen more often."""
    experts, width, _, count, _ = SHAPES[name]
    generator = torch.Generator("cuda").manual_seed(rows)
    hidden = torch.randn(rows, width, device="cuda", generator=generator).to(dtype)
    scores = torch.rand(rows, experts, device="cuda", generator=generator)
    if skewed:
        scores -= torch.arange(experts, device="cuda") / experts * 4
    return hidden, scores.topk(count).indices, torch.rand(rows, count, device="cuda", generator=generator)


def apart(found, truth):
    return float((found.float() - truth.float()).norm() / truth.float().norm())


def check(given, activation, near):
    """Compare with the twin, and with further runs, bit for bit."""
    found = mix_experts(*given, activation=activation)
    assert apart(found, mix_experts.twin(*given, activation=activation)) < near
    for _ in range(3):
        assert torch.equal(mix_experts(*given, activation=activation), found)


@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize("dtype", [BF16, FP16, FP32], ids=str)
@pytest.mark.parametrize("rows", [1, 32, 160, 600])
@pytest.mark.parametrize("name", SHAPES)
def test_equals_the_twin(name, rows, dtype, skewed):
    check((*problem(name, rows, dtype, skewed=skewed), *stacks(name, dtype)), SHAPES[name][-1], NEAR[dtype])


@pytest.mark.parametrize("rows", [1, 130, 600, 4160])
@pytest.mark.parametrize("name", SHAPES)
def test_quantized_experts_equal_the_twin(name, rows):
    upper, lower = stacks(name, BF16)
    (gate_up, outer), (down, its) = (quantize_rows(stack.flatten(0, 1)) for stack in (upper, lower))
    scales = outer.view(upper.shape[:2]), its.view(lower.shape[:2])
    given = (*problem(name, rows, BF16), gate_up.view(upper.shape), down.view(lower.shape), *scales)
    check(given, SHAPES[name][-1], 2e-2)  # sums in another order move an inner number to its neighbour in FP8 at times


@pytest.mark.parametrize("rows", [1040, 4160])
def test_many_rows(rows):
    check((*problem("llada2 mini", rows, BF16), *stacks("llada2 mini", BF16)), "silu", NEAR[BF16])


@pytest.mark.parametrize("rows", [32, 160, 1040, 4160])
def test_the_bits_of_a_row_do_not_depend_on_other_rows(rows):
    """Nor on how many of them choose the same experts, and so on which tile it is in."""
    both = stacks("llada2 mini", BF16)
    first, second = (problem("llada2 mini", rows, BF16, skewed=skewed) for skewed in (False, True))
    for one, other in zip(first, second, strict=True):
        other[-8:] = one[:8]
    found = [mix_experts(*given, *both, activation="silu") for given in (first, second)]
    assert torch.equal(found[0][:8], found[1][-8:])


def test_numbers_of_no_expert_add_nothing():
    hidden, chosen, weights = problem("tiny", 40, BF16)
    chosen[::3, 0], chosen[1::3, 1], chosen[5] = 4, -1, 4
    hidden[5] = float("nan")  # which no other row sees
    found = mix_experts(hidden, chosen, weights, *stacks("tiny", BF16), activation="silu")
    assert not found[5].any()
    assert apart(found, mix_experts.twin(hidden, chosen, weights, *stacks("tiny", BF16), activation="silu")) < NEAR[BF16]
