"""The interpreter that the kernels are tested in computes bf16 as a device does, and lets nothing out of its tensors."""

import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed: it exists for Linux only")

import triton
import triton.language as tl
from hypothesis import given, settings, strategies as st

from ....helpers.triton_interpreter import needs_interpreter

pytestmark = needs_interpreter


@triton.jit
def _arithmetic(left, right, sums, products, less, quotients, SIZE: tl.constexpr):
    place = tl.arange(0, SIZE)
    a, b = tl.load(left + place), tl.load(right + place)
    tl.store(sums + place, a + b)
    tl.store(products + place, a * b)
    tl.store(less + place, (a < b).to(tl.int32))
    tl.store(quotients + place, (a.to(tl.float32) / b.to(tl.float32)).to(tl.bfloat16))


@triton.jit
def _matrices(left, right, product, SIZE: tl.constexpr):
    place = tl.arange(0, SIZE)[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    tl.store(product + place, tl.dot(tl.load(left + place), tl.load(right + place)))


@triton.jit
def _copy(source, target, count, SIZE: tl.constexpr):
    place = tl.arange(0, SIZE)
    tl.store(target + place, tl.load(source + place, mask=place < count))


@settings(max_examples=20)
@given(seed=st.integers(0, 10**6))
def test_bf16_is_computed_in_fp32_and_rounded(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    left, right = (torch.randn(16, generator=generator).bfloat16() for _ in range(2))
    sums, products, quotients = (torch.empty(16, dtype=torch.bfloat16) for _ in range(3))
    less = torch.empty(16, dtype=torch.int32)
    _arithmetic[(1,)](left, right, sums, products, less, quotients, SIZE=16)
    assert torch.equal(sums, left + right)
    assert torch.equal(products, left * right)
    assert torch.equal(quotients, (left.float() / right.float()).bfloat16())
    assert torch.equal(less.bool(), left < right)


def test_bf16_matrices() -> None:
    left, right = torch.randn(2, 16, 16, generator=torch.Generator().manual_seed(0)).bfloat16()
    product = torch.empty(16, 16)
    _matrices[(1,)](left, right, product, SIZE=16)
    # Products are exact in fp32; sixteen of them are summed in any order.
    limit = 16 * 2.0**-24 * (left.double().abs() @ right.double().abs())
    assert ((product.double() - left.double() @ right.double()).abs() <= limit).all()


def test_masked_lanes_may_point_anywhere_others_may_not() -> None:
    source, target = torch.arange(8.0), torch.empty(16)
    _copy[(1,)](source, target, 8, SIZE=16)
    assert torch.equal(target[:8], source)
    with pytest.raises(Exception, match="create_masked_load: 1 of 9 addresses lie outside"):
        _copy[(1,)](source, target, 9, SIZE=16)
