"""Calls of the mixture of experts to compile: name, call, whether quick, and kernels that must use the tensor cores."""

from collections.abc import Callable

import torch

from dlstep_kernels.experts import Activation
from dlstep_kernels.quantization import FP8

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
LLADA2_MINI = (256, 2048, 512)
DIFFUSION_GEMMA = (128, 2816, 704)
TINY = (4, 128, 96)


def _mix(rows: int, dtype: torch.dtype, sizes: tuple[int, int, int], activation: Activation, count: int = 8) -> None:
    from dlstep_kernels.gpu.experts import mix_experts

    experts, width, inner = sizes
    gate_up, down = torch.empty(experts, 2 * inner, width, dtype=dtype), torch.empty(experts, width, inner, dtype=dtype)
    chosen, weights = torch.zeros(rows, count, dtype=torch.int64), torch.empty(rows, count)
    mix_experts(torch.empty(rows, width, dtype=dtype), chosen, weights, gate_up, down, activation=activation)


def _mix_quantized(rows: int, sizes: tuple[int, int, int], activation: Activation) -> None:
    from dlstep_kernels.gpu.experts import mix_experts

    experts, width, inner = sizes
    gate_up, down = torch.empty(experts, 2 * inner, width, dtype=FP8), torch.empty(experts, width, inner, dtype=FP8)
    scales = torch.empty(experts, 2 * inner), torch.empty(experts, width)
    chosen, weights = torch.zeros(rows, 8, dtype=torch.int64), torch.empty(rows, 8)
    mix_experts(torch.empty(rows, width, dtype=BF16), chosen, weights, gate_up, down, *scales, activation=activation)


BOTH = ("_multiply_gated", "_multiply_down")
EXPERTS: list[tuple[str, Callable[[], object], bool, tuple[str, ...]]] = [
    ("experts, 128 rows, 256 of 2048 to 512, bf16", lambda: _mix(128, BF16, LLADA2_MINI, "silu"), True, ()),
    ("experts, 1024 rows, 256 of 2048 to 512, bf16", lambda: _mix(1024, BF16, LLADA2_MINI, "silu"), False, BOTH),
    ("experts, 4160 rows, 256 of 2048 to 512, bf16", lambda: _mix(4160, BF16, LLADA2_MINI, "silu"), True, BOTH),
    ("experts, 256 rows, 128 of 2816 to 704, bf16", lambda: _mix(256, BF16, DIFFUSION_GEMMA, "gelu_tanh"), False, ()),
    ("experts, 4096 rows, 128 of 2816 to 704, fp16", lambda: _mix(4096, FP16, DIFFUSION_GEMMA, "gelu_tanh"), False, BOTH),
    ("experts, 64 rows, 4 of 128 to 96, bf16", lambda: _mix(64, BF16, TINY, "gelu_tanh", 2), False, ()),
    ("experts, 64 rows, 4 of 128 to 96, fp32", lambda: _mix(64, FP32, TINY, "gelu_tanh", 2), True, ()),
]
QUANTIZED: list[tuple[str, Callable[[], object], bool, tuple[str, ...]]] = [
    ("experts, 128 rows, 256 of 2048 to 512, fp8", lambda: _mix_quantized(128, LLADA2_MINI, "silu"), True, ()),
    ("experts, 4160 rows, 256 of 2048 to 512, fp8", lambda: _mix_quantized(4160, LLADA2_MINI, "silu"), False, BOTH),
    ("experts, 256 rows, 128 of 2816 to 704, fp8", lambda: _mix_quantized(256, DIFFUSION_GEMMA, "gelu_tanh"), False, ()),
]
