"""Launch parameters of the kernels: sizes of tiles, warps and stages, looked up in a table and never searched for here."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import torch

Parameters = Mapping[str, int]


@cache
def _table() -> dict[str, dict[str, dict[str, int]]]:
    return json.loads(Path(__file__).with_name("launch.json").read_text())


@cache
def architecture(device: torch.device) -> str:
    """Which generation a device is of, `sm_90` for Hopper; `none` if it is no CUDA device."""
    if device.type != "cuda":
        return "none"
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}"


def parameters(kernel: str, *keys: str) -> Parameters:
    """The entry of the table for `kernel`, under the first of `keys` that it has, or under `default`."""
    entries = _table()[kernel]
    return entries[next((key for key in keys if key in entries), "default")]


def compiled_with(chosen: Parameters) -> dict[str, int | bool]:
    """The launch parameters that triton itself takes; fused multiplication and addition is not left to its default."""
    own = ("num_warps", "num_stages", "launch_pdl")
    return {name: chosen[name] for name in own if name in chosen} | {"enable_fp_fusion": True}


def divided_up(count: int, size: int) -> int:
    """How many parts of `size` hold `count`."""
    return -(-count // size)


def power_of_two(count: int) -> int:
    """The least power of two that is not less than `count`, which is at least 1."""
    return 1 << (count - 1).bit_length()
