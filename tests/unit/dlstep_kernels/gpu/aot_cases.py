"""Calls of the kernels' functions to compile ahead of time, with tensors that are never read.

A case is compiled with the launch parameters and the specialisations that the call would have on a device of each
architecture. Every kernel that the call launches is reported.
"""

from dataclasses import dataclass
from functools import partial

import torch

from .aot_case import Case, case
from .aot_experts import EXPERTS
from .aot_routing import ROUTING
from .aot_sampling import SAMPLING
from .aot_sums import SUMS


def _store(dtype: torch.dtype, kv_heads: int, head_dim: int, stored: torch.dtype) -> None:
    from dlstep_kernels.gpu.attention import store_kv

    rows = torch.empty(1, kv_heads, 32, head_dim, dtype=dtype)[0].transpose(0, 1)
    pages = torch.empty(4097, kv_heads, head_dim, dtype=stored)
    store_kv(rows, rows, pages, pages, torch.zeros(32, dtype=torch.int64))


def _attention(
    dtype: torch.dtype,
    heads: int,
    kv_heads: int,
    head_dim: int,
    window: int,
    *,
    kinds: tuple[str, ...],
    parts: int,
    stored: torch.dtype,
) -> None:
    from dlstep_kernels.gpu.attention import launch_parameters, tiled_attention
    from dlstep_kernels.gpu.launch import power_of_two
    from dlstep_kernels.tiles import bucket_shape, tiles_over

    group = heads // kv_heads
    shape = bucket_shape(8 * window, 8, window, group=group, page_size=32, pages=128, windowed="windowed" in kinds)
    tiles = tiles_over(torch.zeros(sum(shape.sizes), dtype=torch.int32), shape)
    queries = torch.empty(heads, shape.rows, head_dim, dtype=dtype).transpose(0, 1)
    pages = torch.empty(4097, kv_heads, head_dim, dtype=stored)
    # Without a device, there would be more programs than multiprocessors.
    chosen = launch_parameters(queries, max(16, power_of_two(shape.tile_rows * group)), group, kinds)
    tiled_attention(queries, pages, pages, tiles, scale=1.0, parts=parts, chosen=chosen)


@dataclass(frozen=True)
class _Heads:
    """The attention of a model: query heads, key heads, and the numbers of each."""

    heads: int
    kv_heads: int
    head_dim: int

    def case(
        self,
        dtype: torch.dtype,
        window: int,
        *,
        kinds: tuple[str, ...] = (),
        parts: int = 4,
        quick: bool = False,
        stored: torch.dtype | None = None,
    ) -> Case:
        kind = str(dtype).removeprefix("torch.")
        name = f"attention, {self.heads} heads over {self.kv_heads} of {self.head_dim}, {kind}, {window} rows"
        name += "".join(f", {each}" for each in kinds) + (", one part" if parts == 1 else "")
        name += ", fp8 pages" if stored else ""
        high = min(128 // self.group, window) * self.group > 32 and dtype != torch.float32
        # Exact products of fp32 take whole rows of registers, and wide heads all there are: measured, some spilled ones
        # cost less than tiles of half the height. Heads of 256 spill outside of loops. In "waves", half of the registers
        # are left to a second program.
        spilling = ("_attend",) if dtype == torch.float32 or self.head_dim > 128 or "waves" in kinds else ()
        heads = (dtype, self.heads, self.kv_heads, self.head_dim)
        call = partial(_attention, *heads, window, kinds=kinds, parts=parts, stored=stored or dtype)
        return Case(name, call, quick, ("_attend",) if high else (), spilling, least=90 if stored else 80)

    @property
    def group(self) -> int:
        return self.heads // self.kv_heads


FP8, BF16, FP16, FP32 = torch.float8_e4m3fn, torch.bfloat16, torch.float16, torch.float32
ATTENTION = [
    _Heads(32, 8, 128).case(BF16, 32, quick=True),
    _Heads(32, 8, 128).case(BF16, 32, parts=1),
    *(_Heads(32, 8, 128).case(BF16, window, kinds=kinds, stored=FP8) for window, kinds in ((32, ()), (128, ("waves",)))),
    _Heads(32, 8, 128).case(BF16, 128, kinds=("few",)),
    *(_Heads(32, 8, 128).case(BF16, 128, kinds=(kind,)) for kind in ("many", "waves")),
    _Heads(16, 8, 256).case(BF16, 128, kinds=("few",)),
    _Heads(32, 8, 128).case(BF16, 32, kinds=("windowed",)),
    _Heads(32, 8, 128).case(BF16, 1),
    _Heads(32, 8, 128).case(BF16, 8),
    _Heads(32, 8, 128).case(FP16, 32),
    _Heads(32, 8, 128).case(FP32, 32),
    *(_Heads(8 * group, 8, 128).case(BF16, 32) for group in (1, 2, 5, 7, 8)),
    *(_Heads(16, 4, head_dim).case(BF16, 32) for head_dim in (16, 64, 80, 96, 112, 256, 512)),
    *(_Heads(16, 4, head_dim).case(FP32, 32) for head_dim in (16, 64, 96, 256)),
    *(_Heads(16, kv_heads, head_dim).case(BF16, 128, kinds=("windowed",)) for kv_heads, head_dim in ((8, 256), (2, 512))),
]
STORE = [
    case("store, 8 heads of 128, bf16", _store, BF16, 8, 128, BF16, quick=True),
    case("store, 2 heads of 512, bf16", _store, BF16, 2, 512, BF16),
    case("store, 8 heads of 128, bf16 in fp8", _store, BF16, 8, 128, FP8, least=90),
    case("store, 4 heads of 96, fp32", _store, FP32, 4, 96, FP32),
]

CASES: list[Case] = [*ATTENTION, *STORE, *SAMPLING, *EXPERTS, *ROUTING, *SUMS]
