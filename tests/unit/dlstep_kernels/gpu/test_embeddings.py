"""Soft inputs in the interpreter, against their twin."""

import torch
from hypothesis import given, strategies as st

from dlstep_kernels import embeddings
from dlstep_kernels.gpu import embeddings as kernels

from ....helpers.sampling_checks import DTYPES, check_merge
from ....helpers.triton_interpreter import needs_interpreter
from ..profiles import up_to

pytestmark = needs_interpreter


@up_to(25)
@given(
    seed=st.integers(0, 10**6),
    blended=st.integers(0, 4),
    count=st.integers(1, 3),
    width=st.sampled_from((1, 16, 37)),
    dtype=st.sampled_from(DTYPES),
)
def test_merge_equals_the_twin(seed, blended, count, width, dtype):
    sizes = {"ids": 11, "total": 7, "blended": blended, "count": count, "width": width}
    check_merge(kernels.merge_embeddings, embeddings.merge_embeddings, seed, dtype=dtype, **sizes)


@up_to(25)
@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(0, 4),
    width=st.sampled_from((1, 16, 37, 64)),
    spread=st.sampled_from((0.1, 5.0, 500.0)),
    cap=st.sampled_from((None, 30.0)),
    dtype=st.sampled_from(DTYPES),
)
def test_shares_equal_the_twin(seed, rows, width, spread, cap, dtype):
    generator = torch.Generator().manual_seed(seed)
    # A view into wider rows: their numbers are not next to each other.
    logits = (torch.randn(rows, width + 3, generator=generator) * spread).to(dtype)[:, :width]
    temperatures = torch.rand(rows, generator=generator) + 0.3
    found, twin = (module.token_shares(logits, temperatures, cap=cap) for module in (kernels, embeddings))
    # A score that is rounded the other way moves all shares of its row by up to its last bit, which is at most 2.5 * spread.
    largest = min(spread * 4, cap or spread * 4) / 0.3
    step = {torch.float32: 2.0**-23, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}[dtype]
    tolerance = 2 * step * (1 + largest) if dtype != torch.float32 else 16 * step * (1 + largest)
    torch.testing.assert_close(found, twin, atol=tolerance, rtol=0)
    exact = (found == twin).float().mean() if found.numel() else 1.0
    assert dtype == torch.float32 or exact > 0.8, f"only {exact} of the shares are equal"
