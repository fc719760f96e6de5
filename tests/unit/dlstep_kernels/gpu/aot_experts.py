"""Calls of the mixture of experts to compile."""

from typing import Any

import torch

from dlstep_kernels.experts import Activation
from dlstep_kernels.quantization import FP8

from .aot_case import case

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
LLADA2_MINI = (256, 2048, 512)
DIFFUSION_GEMMA = (128, 2816, 704)
TINY = (4, 128, 96)


def _mix(
    rows: int, dtype: torch.dtype, sizes: tuple[int, int, int], activation: Activation, count: int = 8, *, fp8: bool = False
) -> None:
    from dlstep_kernels.gpu.experts import mix_experts

    (experts, width, inner), stored = sizes, FP8 if fp8 else dtype
    gate_up, down = torch.empty(experts, 2 * inner, width, dtype=stored), torch.empty(experts, width, inner, dtype=stored)
    scales = (torch.empty(experts, 2 * inner), torch.empty(experts, width)) if fp8 else ()
    chosen, weights = torch.zeros(rows, count, dtype=torch.int64), torch.empty(rows, count)
    mix_experts(torch.empty(rows, width, dtype=dtype), chosen, weights, gate_up, down, *scales, activation=activation)


IN_FP8: dict[str, Any] = {"fp8": True, "least": 90}
BOTH = ("_multiply_gated", "_multiply_down")
EXPERTS = [
    case("experts, 128 rows, 256 of 2048 to 512, bf16", _mix, 128, BF16, LLADA2_MINI, "silu", quick=True),
    case("experts, 1024 rows, 256 of 2048 to 512, bf16", _mix, 1024, BF16, LLADA2_MINI, "silu", cores=BOTH),
    case("experts, 4160 rows, 256 of 2048 to 512, bf16", _mix, 4160, BF16, LLADA2_MINI, "silu", quick=True, cores=BOTH),
    case("experts, 256 rows, 128 of 2816 to 704, bf16", _mix, 256, BF16, DIFFUSION_GEMMA, "gelu_tanh"),
    case("experts, 4096 rows, 128 of 2816 to 704, fp16", _mix, 4096, FP16, DIFFUSION_GEMMA, "gelu_tanh", cores=BOTH),
    case("experts, 64 rows, 4 of 128 to 96, bf16", _mix, 64, BF16, TINY, "gelu_tanh", 2),
    case("experts, 64 rows, 4 of 128 to 96, fp32", _mix, 64, FP32, TINY, "gelu_tanh", 2, quick=True),
    case("experts, 128 rows, 256 of 2048 to 512, fp8", _mix, 128, BF16, LLADA2_MINI, "silu", quick=True, **IN_FP8),
    case("experts, 4160 rows, 256 of 2048 to 512, fp8", _mix, 4160, BF16, LLADA2_MINI, "silu", cores=BOTH, **IN_FP8),
    case("experts, 256 rows, 128 of 2816 to 704, fp8", _mix, 256, BF16, DIFFUSION_GEMMA, "gelu_tanh", **IN_FP8),
]
