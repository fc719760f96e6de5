"""Launch parameters of the kernels (tile sizes, warps, stages), looked up in launch.json."""

import json
from collections.abc import Callable, Mapping
from functools import cache, partial
from inspect import unwrap
from pathlib import Path
from typing import Any

import torch
import triton
from torch import Tensor

ALIGNMENT = 16  # bytes; rows that a descriptor reads must start at multiples
Parameters = Mapping[str, int]


def kernel(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Compile a function with Triton, without the checks of argument types that an import hook may have added."""
    return partial(kernel, **options) if function is None else triton.jit(unwrap(function), **options)


@cache
def _table() -> dict[str, dict[str, dict[str, int]]]:
    return json.loads(Path(__file__).with_name("launch.json").read_text())


@cache
def architecture(device: torch.device) -> str:
    """Return a device's generation, such as `sm_90` for Hopper; `none` without CUDA."""
    if device.type != "cuda":
        return "none"
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}"


def parameters(kernel: str, *keys: str) -> Parameters:
    """Return the table's entry for `kernel` under the first known key, or under `default`."""
    entries = _table()[kernel]
    return entries[next((key for key in keys if key in entries), "default")]


def compiled_with(chosen: Parameters) -> dict[str, int | bool]:
    """Return the parameters for triton itself, with fused multiply-add enabled explicitly."""
    own = ("num_warps", "num_stages", "maxnreg", "launch_pdl")
    return {name: chosen[name] for name in own if name in chosen} | {"enable_fp_fusion": True}


def divided_up(count: int, size: int) -> int:
    """Return the number of parts of `size` that hold `count`."""
    return -(-count // size)


def power_of_two(count: int) -> int:
    """Return the smallest power of two that is at least `count`, which must be positive."""
    return 1 << (count - 1).bit_length()


def aligned(matrix: Tensor) -> bool:
    """Return whether a descriptor can read the rows of a matrix."""
    return matrix.data_ptr() % ALIGNMENT == matrix.stride(0) * matrix.itemsize % ALIGNMENT == 0
