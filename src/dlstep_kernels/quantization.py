"""FP8 matrix products: weights with a scale per output channel, activations with a scale per row (W8A8)."""

from typing import Any

import torch
from jaxtyping import Float, Float8e4m3fn, Float32
from torch import Tensor

from .choice import with_kernel

FP8 = torch.float8_e4m3fn
LARGEST = 448.0  # the largest finite FP8 number
INVERSE = 1 / LARGEST  # in torch, division by a constant differs between devices; multiplication does not
SMALLEST = 2.0**-100  # lower bound for the largest magnitude of a row, so that no scale is 0 or subnormal
ALIGNMENT = 16  # cuBLAS multiplies FP8 matrices only if both dimensions of the weight are multiples of this


def supports_fp8(device: torch.device) -> bool:
    """Return whether a device supports FP8 products: CUDA of compute capability 8.9 or above, or (slowly) a CPU.

    Args:
        device: A torch device.
    """
    return device.type == "cpu" or (device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 9))


@with_kernel("quantization")
def quantize_rows(rows: Float[Tensor, "n width"]) -> tuple[Float8e4m3fn[Tensor, "n width"], Float32[Tensor, " n"]]:
    """Return the FP8 codes of each row, which are its numbers divided by its scale and rounded, and the scales.

    The scale maps the largest magnitude of a row to 448, the largest FP8 number. If a row contains
    NaN or an infinity, its scale is not finite, so all products with the row are NaN.

    Args:
        rows: Rows of any floating-point dtype.
    """
    wide = rows.float()
    scales = wide.abs().amax(-1).clamp(min=SMALLEST) * INVERSE
    return (wide * scales.reciprocal()[:, None]).to(FP8), scales


# A custom operation, because compiled code would read wide rows twice.
_quantize_rows = torch.library.custom_op(
    "dlstep::quantize_rows", quantize_rows, mutates_args=(), schema="(Tensor rows) -> (Tensor, Tensor)"
)


@_quantize_rows.register_fake
def _(rows: Tensor) -> tuple[Tensor, Tensor]:
    return rows.new_empty(rows.shape, dtype=FP8), rows.new_empty(rows.shape[:1], dtype=torch.float32)


def scaled_linear(rows: Tensor, weight: Tensor, scales: Tensor, one: Tensor, bias: Tensor | None) -> Tensor:
    """Quantize the rows, multiply them by an FP8 weight and return the scaled product plus the bias: [..., out].

    The result has the dtype of the rows. On CUDA, if this is bfloat16, the product is rounded
    to bfloat16 before it is scaled. Annotated with plain tensors, because compilers cannot trace shape
    checks.

    Args:
        rows: Rows [..., in], not quantized yet.
        weight: FP8 codes [out, in].
        scales: Scale of each output, float32 [out].
        one: The number 1 as a float32 tensor on the device.
        bias: Bias [out], or None.
    """
    codes, row_scales = _quantize_rows(rows.flatten(0, -2))
    if codes.is_cuda and not any(size % ALIGNMENT for size in weight.shape):
        # Apply the scales after the product: with a single scale, cuBLAS has kernels for every number of rows, which
        # take 0.53 to 0.55 of the time in bfloat16. With a scale per row, `_scaled_mm` takes 0.50 to 0.75.
        wide = torch.bfloat16 if rows.dtype == torch.bfloat16 else torch.float32
        multiply: Any = torch._scaled_mm  # pyright: ignore[reportPrivateImportUsage]
        product = multiply(codes, weight.T, scale_a=one, scale_b=one, out_dtype=wide, use_fast_accum=True).float()
    else:
        product = codes.float() @ weight.float().T
    scaled = product * row_scales[:, None] * scales
    answer = scaled if bias is None else scaled + bias.float()
    return answer.to(rows.dtype).view(*rows.shape[:-1], weight.shape[0])
