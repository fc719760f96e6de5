"""Check every kernel against plain torch, then time it against the limits of the device."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from dlstep_kernels import has_kernels

from ..ceilings import Ceilings, measure_ceilings, timed_us
from .cases import USUAL, KernelCase, Sizes, cases


@dataclass(frozen=True, slots=True)
class KernelRow:
    """A row of the table. `error` is the distance to plain torch, `limit` the largest due to rounding.

    `least_us` is the time for `moved_mb` and `gflop` at the measured ceilings, `share` is `least_us` / `us`.
    """

    kernel: str
    case: str
    equal: bool
    error: float
    us: float
    least_us: float
    share: float
    moved_mb: float
    gflop: float
    copy_gb_s: float
    matmul_tflop_s: float


def kernel_device() -> torch.device:
    """Return the CUDA device. Raises ValueError if there is none that runs kernels."""
    if not torch.cuda.is_available():
        raise ValueError("kernels are measured on a CUDA device, and there is none here: torch.cuda.is_available() is false")
    device = torch.device("cuda", torch.cuda.current_device())
    if not has_kernels(device):
        raise ValueError(f"{torch.cuda.get_device_name(device)} runs no kernels: they need compute capability 8.0 and triton")
    return device


def measure_kernels(sizes: Sizes = USUAL, ceilings: Ceilings | None = None) -> Iterator[KernelRow]:
    """Yield a row for each case, in bfloat16. Wrong results are timed too and have `equal` false."""
    device, dtype = kernel_device(), torch.bfloat16
    torch.manual_seed(0)
    ceilings = ceilings or measure_ceilings(device, dtype)
    for case in cases(device, dtype, sizes):
        yield measured(case, device, ceilings)


def measured(case: KernelCase, device: torch.device, ceilings: Ceilings) -> KernelRow:
    """Return the figures of one case."""
    error = case.error()
    us = timed_us(case.calls, device)
    least = ceilings.least_us(case.need.moved, case.need.flops)
    return KernelRow(
        kernel=case.kernel,
        case=case.name,
        equal=error <= case.limit,
        error=error,
        us=us,
        least_us=least,
        share=least / us,
        moved_mb=case.need.moved / 1e6,
        gflop=case.need.flops / 1e9,
        copy_gb_s=ceilings.bytes_per_s / 1e9,
        matmul_tflop_s=ceilings.flops_per_s / 1e12,
    )
