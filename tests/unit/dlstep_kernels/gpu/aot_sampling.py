"""Calls of the sampling kernels to compile."""

from dataclasses import replace
from typing import Any

import torch

from dlstep_kernels import Penalty, SamplerConfig, Settings, SoftRows
from dlstep_kernels.sampling import Noise, TokenMasks

from .aot_case import case

VOCAB, HIDDEN = 152_064, 4096
PLAIN = SamplerConfig()
CANVAS = SamplerConfig(frozenset(("entropy", "noise")), "lowest", best=1, cap=30.0)
ALL = SamplerConfig(frozenset(("entropy", "margin", "noise")), best=8, tempered=False)


def _asked(
    rows: int, sampler: SamplerConfig = PLAIN, *, raced: bool = False, named: int = 0, masked: bool = False
) -> dict[str, Any]:
    whole = torch.zeros(rows, dtype=torch.int64)
    settings = Settings(noise=Noise(whole, whole, whole))
    if raced:
        settings = replace(settings, temperatures=torch.ones(rows), penalty=Penalty(whole, torch.ones(rows)))
    if masked:
        settings = replace(settings, masks=TokenMasks(torch.zeros(4096, 151_936 // 32, dtype=torch.int32), whole))
    if named:
        settings = replace(settings, scored_ids=torch.zeros(rows, named, dtype=torch.int64))
    return {"settings": settings, "vocab_size": 151_936, "mask_id": 151_666, "sampler": sampler}


def _sample(rows: int, dtype: torch.dtype, *sampler: SamplerConfig, **asked: Any) -> None:
    from dlstep_kernels.gpu.sampling import sample

    sample(torch.empty(rows, VOCAB, dtype=dtype), **_asked(rows, *sampler, **asked))


def _head(rows: int, dtype: torch.dtype, *sampler: SamplerConfig, **asked: Any) -> None:
    from dlstep_kernels.gpu.head import head_and_sample

    hidden, weight = torch.empty(rows, HIDDEN, dtype=dtype), torch.empty(VOCAB, HIDDEN, dtype=dtype)
    head_and_sample(hidden, weight, **_asked(rows, *sampler, **asked))


def _merge(dtype: torch.dtype, width: int, count: int) -> None:
    from dlstep_kernels.gpu.embeddings import merge_embeddings

    table = torch.empty(VOCAB, width, dtype=dtype)
    shares = torch.empty(32, count)
    rows = torch.zeros(32, dtype=torch.int64)
    soft = SoftRows(rows, torch.zeros(32, count, dtype=torch.int64), shares, rows, shares[:, 0])
    merge_embeddings(torch.empty(64, width, dtype=dtype), table, 3, soft)


def _share(dtype: torch.dtype) -> None:
    from dlstep_kernels.gpu.embeddings import token_shares

    token_shares(torch.empty(32, VOCAB, dtype=dtype), torch.ones(32), cap=30.0)


def _uniform(rows: int) -> None:
    from dlstep_kernels.gpu.draws import uniform

    uniform(torch.zeros(rows, dtype=torch.int64), count=151936)


BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
HEAD: dict[str, Any] = {"cores": ("_read_head",)}
SAMPLING = [
    case("sample, 32 rows, bf16", _sample, 32, BF16, quick=True),
    case("sample, 1024 rows, fp32", _sample, 1024, FP32),
    case("sample, 32 rows, fp16, all statistics", _sample, 32, FP16, ALL),
    case("sample, 32 rows, bf16, noise and all statistics", _sample, 32, BF16, ALL, raced=True, quick=True),
    case("sample, 256 rows, bf16, canvases", _sample, 256, BF16, CANVAS, raced=True, quick=True),
    case("sample, 32 rows, fp32, noise", _sample, 32, FP32, raced=True),
    case("head and sample, 1 row, bf16", _head, 1, BF16),
    case("head and sample, 32 rows, bf16", _head, 32, BF16),
    case("head and sample, 64 rows, bf16", _head, 64, BF16, **HEAD),
    case("head and sample, 256 rows, bf16", _head, 256, BF16, quick=True, **HEAD),
    case("head and sample, 32 rows, bf16, noise", _head, 32, BF16, raced=True),
    case("head and sample, 256 rows, bf16, noise", _head, 256, BF16, raced=True, **HEAD),
    case("head and sample, 256 rows, fp16, all", _head, 256, FP16, ALL, raced=True, **HEAD),
    case("head and sample, 32 rows, fp32", _head, 32, FP32),
    case("sample, 32 rows, bf16, named ids", _sample, 32, BF16, raced=True, named=2),
    case("head and sample, 32 rows, bf16, named ids", _head, 32, BF16, ALL, raced=True, named=2, quick=True),
    case("head and sample, 32 rows, fp16, named ids", _head, 32, FP16, raced=True, named=2),
    case("sample, 32 rows, bf16, masks", _sample, 32, BF16, masked=True),
    case("sample, 32 rows, bf16, all, masks", _sample, 32, BF16, ALL, raced=True, named=2, masked=True),
    case("head and sample, 32 rows, bf16, masks", _head, 32, BF16, masked=True),
    case("head and sample, 32 rows, fp32, masks", _head, 32, FP32, masked=True),
    case("head and sample, 32 rows, bf16, noise, masks", _head, 32, BF16, raced=True, masked=True),
    case("head and sample, 64 rows, bf16, masks", _head, 64, BF16, masked=True, **HEAD),
    case("head and sample, 64 rows, bf16, noise, masks", _head, 64, BF16, raced=True, masked=True, **HEAD),
    case("head and sample, 256 rows, bf16, masks", _head, 256, BF16, masked=True, **HEAD),
    case("head and sample, 256 rows, bf16, noise, masks", _head, 256, BF16, raced=True, masked=True, **HEAD),
    case("head and sample, 256 rows, fp16, all, masks", _head, 256, FP16, ALL, raced=True, named=2, masked=True, **HEAD),
    case("merge, 1 of 4096, bf16", _merge, BF16, 4096, 1, quick=True),
    case("merge, 3 of 2048, fp32", _merge, FP32, 2048, 3),
    case("shares of tokens, bf16", _share, BF16, quick=True),
    case("shares of tokens, fp32", _share, FP32),
    case("uniform numbers, 32 rows", _uniform, 32, quick=True),
]
