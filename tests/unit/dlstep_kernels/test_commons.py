"""Memory that ranks have in common, and its parts."""

import torch
from hypothesis import given, strategies as st

from dlstep_kernels import commons

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32


@given(
    vectors=st.integers(0, 5000),
    odd=st.integers(0, 15),
    dtype=st.sampled_from((BF16, FP16, FP32, torch.float64, torch.int32)),
    size=st.integers(2, 9),
)
def test_parts_are_whole_vectors_and_find_room(vectors, odd, dtype, size):
    tensor = torch.empty(1024 * vectors + odd, dtype=dtype, device="meta")
    if not commons.suits(tensor, size):
        wrong = tensor.numel() % (16 * size) or dtype not in commons.DTYPES
        assert wrong or not 0 < tensor.nbytes <= commons.LARGEST
        return
    assert tensor.nbytes % (16 * size) == 0
    if tensor.nbytes > commons.whole_bytes(size):
        assert 2 * (size - 1) * tensor.nbytes // size <= commons.parts_bytes(size)
    assert commons.parts_bytes(size) + 2 * (size - 1) * commons.whole_bytes(size) <= commons.room_bytes(size)
