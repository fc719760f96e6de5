"""Quantize rows to FP8, one program per row."""

import torch
import triton.language as tl
from jaxtyping import Float, Float8e4m3fn, Float32
from torch import Tensor
from triton.language import constexpr

from ..quantization import FP8, INVERSE, SMALLEST
from .launch import architecture, compiled_with, kernel, parameters, power_of_two

_INVERSE, _SMALLEST = constexpr(INVERSE), constexpr(SMALLEST)


@kernel
def _quantize_rows(rows, codes, scales, stride, width, BLOCK: constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < width
    values = tl.load(rows + row * stride + column, mask=inside, other=0.0).to(tl.float32)
    largest = tl.max(tl.where(values == values, tl.abs(values), float("inf")), 0)
    # A NaN scale makes all products with the row NaN, whatever its codes are.
    scale = tl.where(largest < float("inf"), tl.maximum(largest, _SMALLEST) * _INVERSE, float("nan"))
    tl.store(codes + row * width + column, (values * tl.div_rn(1.0, scale)).to(codes.dtype.element_ty), mask=inside)
    tl.store(scales + row, scale)


def quantize_rows(rows: Float[Tensor, "n width"]) -> tuple[Float8e4m3fn[Tensor, "n width"], Float32[Tensor, " n"]]:
    """Return the same as the twin, except that codes and scale of a row with NaN or an infinity may differ."""
    rows = rows if rows.stride(1) == 1 else rows.contiguous()
    count, width = rows.shape
    codes = torch.empty((count, width), dtype=FP8, device=rows.device)
    scales = torch.empty(count, dtype=torch.float32, device=rows.device)
    if count:
        launch = parameters("quantize_rows", architecture(rows.device))
        _quantize_rows[(count,)](rows, codes, scales, rows.stride(0), width, BLOCK=power_of_two(width), **compiled_with(launch))
    return codes, scales
