"""Mixtures of experts: the kernels in the interpreter against their twin."""

import math

import torch
from hypothesis import example, given, strategies as st

from dlstep_kernels import experts as twin, quantize_rows
from dlstep_kernels.gpu import experts as kernels

from ....helpers.sampling_checks import DTYPES, LAYOUTS, laid_out, launched
from ....helpers.triton_interpreter import needs_interpreter
from ..profiles import up_to

pytestmark = needs_interpreter


NEAR = {torch.float32: 1e-5, torch.bfloat16: 2**-6, torch.float16: 2**-9}
ACTIVATIONS = ("silu", "gelu_tanh")


def stacks(generator, experts, width, inner, dtype):
    """Weights of all experts, small enough that sums stay near 1."""
    gate_up = torch.randn(experts, 2 * inner, width, generator=generator) / math.sqrt(width)
    return gate_up.to(dtype), (torch.randn(experts, width, inner, generator=generator) / math.sqrt(inner)).to(dtype)


def in_fp8(gate_up, down):
    """The same weights, quantized."""
    (upper, outer), (lower, its) = (quantize_rows(stack.flatten(0, 1)) for stack in (gate_up, down))
    return upper.view(gate_up.shape), lower.view(down.shape), outer.view(gate_up.shape[:2]), its.view(down.shape[:2])


@up_to(40)
@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(0, 40),
    count=st.integers(1, 4),
    experts=st.integers(1, 9),
    width=st.sampled_from((8, 16, 40)),
    inner=st.sampled_from((8, 16, 27)),
    dtype=st.sampled_from(DTYPES),
    layout=st.sampled_from(LAYOUTS),
    routing=st.sampled_from(("any", "distinct", "one expert", "none")),
    odd=st.sampled_from((None, math.nan, math.inf)),
    height=st.sampled_from((16, 128)),
    bulk=st.booleans(),
    activation=st.sampled_from(ACTIVATIONS),
    quantized=st.booleans(),
)
@example(
    seed=0, rows=40, count=4, experts=1, width=16, inner=16, dtype=torch.float32, layout="rows", routing="one expert",
    odd=None, height=128, bulk=True, activation="silu", quantized=False,
)  # fmt: skip
def test_equals_the_twin(
    seed, rows, count, experts, width, inner, dtype, layout, routing, odd, height, bulk, activation, quantized
):
    generator = torch.Generator().manual_seed(seed)
    hidden = laid_out(torch.randn(rows, width, generator=generator).to(dtype), layout)
    if odd is not None and rows and layout != "one row":
        hidden[-1] = odd  # of which the other rows of its tiles know nothing
    chosen = {
        # Numbers of no expert, on both sides and beyond 32 bits, are among them.
        "any": torch.randint(-1, experts + 1, (rows, count), generator=generator)
        + (torch.arange(rows) % 5 == 4)[:, None] * 2**32,
        "distinct": torch.rand(rows, max(experts, count), generator=generator).argsort(1)[:, :count],
        "one expert": torch.full((rows, count), experts - 1),
        "none": torch.full((rows, count), experts),
    }[routing]
    weights = torch.rand(rows, count, generator=generator)
    both = stacks(generator, experts, width, inner, dtype)
    given = (hidden, chosen, weights, *(in_fp8(*both) if quantized else both))
    with launched(kernels, bulk=int(bulk), rows=height):
        found = kernels.mix_experts(*given, activation=activation)
    expected = twin.mix_experts(*given, activation=activation)
    # Another order of sums moves an inner number to its neighbour in FP8 at times, by a sixteenth of it at most.
    near = 2**-6 if quantized else NEAR[dtype]
    torch.testing.assert_close(found, expected, atol=near, rtol=near, equal_nan=True)
    assert found.dtype == dtype
