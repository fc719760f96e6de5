"""Calls of the choice of experts to compile."""

import torch

from .aot_case import case

BF16, FP32 = torch.bfloat16, torch.float32


def _choose(rows: int, dtype: torch.dtype, sizes: tuple[int, int], groups: int, kept: int, count: int = 8) -> None:
    from dlstep_kernels.gpu.routing import choose_experts

    weight = torch.empty(sizes, dtype=dtype)
    choose_experts(
        torch.empty(rows, sizes[1], dtype=dtype), weight, torch.empty(sizes[0]),
        groups=groups, kept_groups=kept, count=count, normalised=True, scale=2.5,
    )  # fmt: skip


def _choose_by_softmax(dtype: torch.dtype) -> None:
    from dlstep_kernels.gpu.routing import softmax_experts

    softmax_experts(torch.empty(256, 128, dtype=dtype), torch.empty(128, dtype=dtype), count=8)


PRODUCT = ("_multiply_part",)
ROUTING = [
    case("choose, 160 rows, 256 experts in 8 groups, bf16", _choose, 160, BF16, (256, 2048), 8, 4, quick=True, cores=PRODUCT),
    case("choose, 1040 rows, 256 experts in 8 groups, bf16", _choose, 1040, BF16, (256, 2048), 8, 4, cores=PRODUCT),
    case("choose, 4224 rows, 256 experts in 8 groups, bf16", _choose, 4224, BF16, (256, 2048), 8, 4, cores=PRODUCT),
    case("choose, 128 rows, 12 experts in 3 groups, fp32", _choose, 128, FP32, (12, 40), 3, 2, 2),
    case("choose by softmax, 128 experts, bf16", _choose_by_softmax, BF16, quick=True),
]
