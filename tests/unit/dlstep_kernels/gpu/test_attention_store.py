"""The store kernel in the interpreter, against its twin."""

import pytest
import torch
from hypothesis import given, strategies as st

pytest.importorskip("triton", reason="triton is not installed: it exists for Linux only")

from dlstep_kernels import store_kv as store_kv_twin
from dlstep_kernels.gpu.attention import store_kv

from ....helpers.attention_checks import check_store
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
    check_store(store_kv, store_kv_twin, torch.tensor(slots, dtype=torch.int64), 10, kv_heads, head_dim, dtype, seed)
