"""Products in FP8: weights with a scale per output channel, activations with a scale per row (W8A8)."""

from typing import Any

import torch
from jaxtyping import Float, Float8e4m3fn, Float32
from torch import Tensor

from .choice import with_kernel

FP8 = torch.float8_e4m3fn
LARGEST = 448.0  # of the finite numbers of FP8
INVERSE = 1 / LARGEST  # torch divides by a constant in different ways on different devices, but multiplies in one
SMALLEST = 2.0**-100  # lower bound of a row's largest magnitude, so that no scale is 0 or subnormal
ALIGNMENT = 16  # numbers; cuBLAS multiplies FP8 matrices only if both sizes of the weight are multiples


def supports_fp8(device: torch.device) -> bool:
    """Return whether a device multiplies FP8 numbers: CUDA with compute capability 8.9 or above, or a CPU, slowly.

    Args:
        device: A device of torch.
    """
    return device.type == "cpu" or (device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 9))


@with_kernel("quantization")
def quantize_rows(rows: Float[Tensor, "n width"]) -> tuple[Float8e4m3fn[Tensor, "n width"], Float32[Tensor, " n"]]:
    """Return each row divided by its scale, rounded to FP8, and the scales.

    The scale maps the largest magnitude of a row to 448, the largest number of FP8. All products with
    a row that has NaN or an infinity are NaN: its scale is not finite.

    Args:
        rows: The rows, in any floating-point type.
    """
    return quantized(rows)


def quantized(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return codes and scales as `quantize_rows` does, for rows [..., width].

    Annotated as plain tensors, because compilers cannot trace shape checks. They fuse this with the
    operation that computes the rows.
    """
    wide = rows.float()
    scales = wide.abs().amax(-1).clamp(min=SMALLEST) * INVERSE
    return (wide * scales.reciprocal()[..., None]).to(FP8), scales


def scaled_linear(rows: Tensor, weight: Tensor, scales: Tensor, one: Tensor, bias: Tensor | None) -> Tensor:
    """Return the product of quantized rows with an FP8 weight, scaled, plus the bias: [..., out].

    The result has the dtype of the rows. On CUDA, the product is rounded to bfloat16 before it is
    scaled, if that is the dtype. Annotated as `quantized`.

    Args:
        rows: Rows [..., in], which are quantized first.
        weight: FP8 codes [out, in].
        scales: Scale of each output, float32 [out].
        one: The number 1 in float32 on the device.
        bias: Bias [out]; None: none.
    """
    codes, row_scales = quantized(rows.flatten(0, -2))
    if codes.is_cuda and not any(size % ALIGNMENT for size in weight.shape):
        # Scales are applied after the product: for a single scale, cuBLAS has kernels for all numbers of rows, which
        # take 0.53 to 0.55 of the time in bfloat16. With a scale per row, torch takes 0.50 to 0.75.
        wide = torch.bfloat16 if rows.dtype == torch.bfloat16 else torch.float32
        multiply: Any = torch._scaled_mm  # pyright: ignore[reportPrivateImportUsage]
        product = multiply(codes, weight.T, scale_a=one, scale_b=one, out_dtype=wide, use_fast_accum=True).float()
    else:
        product = codes.float() @ weight.float().T
    scaled = product * row_scales[:, None] * scales
    answer = scaled if bias is None else scaled + bias.float()
    return answer.to(rows.dtype).view(*rows.shape[:-1], weight.shape[0])
