"""Calls of sums over ranks to compile."""

import torch

from .aot_case import case

BF16, FP32 = torch.bfloat16, torch.float32


def _add(rows: int, dtype: torch.dtype, size: int) -> None:
    from dlstep_kernels.commons import MOST, Commons, pad_shape
    from dlstep_kernels.gpu.add_up import add_up

    room, pad = torch.empty(1024, dtype=torch.uint8), torch.empty(pad_shape(size), dtype=torch.int64)
    counts, gone = torch.empty(MOST + 1, dtype=torch.int64), torch.empty(1, dtype=torch.int32)
    add_up(torch.empty(rows, 4096, dtype=dtype), Commons(1, (room,) * size, (pad,) * size, counts, gone, 132))


SUMS = [
    case("sum over 2 ranks, 130 rows of 4096, bf16", _add, 130, BF16, 2, quick=True),
    case("sum over 2 ranks, 1040 rows of 4096, bf16", _add, 1040, BF16, 2, quick=True),
    case("sum over 2 ranks, 130 rows of 4096, fp32", _add, 130, FP32, 2),
    case("sum over 8 ranks, 1040 rows of 4096, bf16", _add, 1040, BF16, 8),
]
