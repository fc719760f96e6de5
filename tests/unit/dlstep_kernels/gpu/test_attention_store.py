"""The store kernel in the interpreter, against its twin."""

import pytest
import torch
from hypothesis import given, strategies as st

pytest.importorskip("triton", reason="triton is not installed: it exists for Linux only")

from dlstep_kernels import store_kv as store_kv_twin
from dlstep_kernels.gpu.attention import store_kv

from ....helpers.triton_interpreter import needs_interpreter
from ..profiles import up_to

pytestmark = needs_interpreter


@up_to(20)
@given(
    seed=st.integers(0, 10**6),
    kv_heads=st.integers(1, 3),
    head_dim=st.sampled_from((16, 80)),
    dtype=st.sampled_from((torch.float32, torch.bfloat16)),
    slots=st.lists(st.integers(-1, 9), min_size=0, max_size=6, unique_by=lambda slot: slot if slot >= 0 else object()),
)
def test_stores_what_the_twin_stores(seed, kv_heads, head_dim, dtype, slots):
    generator = torch.Generator().manual_seed(seed)
    # As a model gives them: heads before rows, keys contiguous, values part of a larger tensor.
    keys = torch.randn(kv_heads, len(slots), head_dim, generator=generator).to(dtype).transpose(0, 1)
    values = torch.randn(len(slots), 3 * kv_heads, head_dim, generator=generator).to(dtype)[:, kv_heads : 2 * kv_heads]
    pages = torch.randn(2, 2, 11, kv_heads, head_dim, generator=generator).to(dtype)
    there = torch.tensor(slots, dtype=torch.int64)
    scratch = pages[:, :, -1].clone()
    store_kv(keys, values, *pages[0], there)
    reference = pages[1]
    reference.copy_(torch.randn(2, 11, kv_heads, head_dim, generator=generator))
    reference.copy_(pages[0])
    store_kv_twin(keys, values, *reference, there)
    assert torch.equal(pages[0][:, :-1], reference[:, :-1])
    assert torch.equal(pages[0][:, -1], scratch[0])
