"""Calls of the sampling kernels to compile: name, call, whether quick, and kernels that must use the tensor cores."""

from collections.abc import Callable
from dataclasses import replace

import torch

from dlstep_kernels import Penalty, SamplerConfig, Settings, SoftRows
from dlstep_kernels.sampling import Noise, TokenMasks

VOCAB, HIDDEN = 152_064, 4096
PLAIN = SamplerConfig()
CANVAS = SamplerConfig(frozenset(("entropy", "noise")), "lowest", best=1, cap=30.0)
ALL = SamplerConfig(frozenset(("entropy", "margin", "noise", "log_sum")), best=8, tempered=False)


def _settings(rows: int, raced: bool, named: int, masked: bool) -> Settings:
    whole = torch.zeros(rows, dtype=torch.int64)
    settings = Settings(noise=Noise(whole, whole, whole))
    if raced:
        settings = replace(settings, temperatures=torch.ones(rows), penalty=Penalty(whole, torch.ones(rows)))
    if masked:
        settings = replace(settings, masks=TokenMasks(torch.zeros(4096, 151_936 // 32, dtype=torch.int32), whole))
    return replace(settings, scored_ids=torch.zeros(rows, named, dtype=torch.int64)) if named else settings


def _sample(rows: int, dtype: torch.dtype, sampler: SamplerConfig, raced: bool, named: int = 0, masked: bool = False) -> None:
    from dlstep_kernels.gpu.sampling import sample

    logits = torch.empty(rows, VOCAB, dtype=dtype)
    sample(logits, _settings(rows, raced, named, masked), vocab_size=151_936, mask_id=151_666, sampler=sampler)


def _head(
    rows: int,
    dtype: torch.dtype,
    sampler: SamplerConfig,
    raced: bool,
    named: int = 0,
    masked: bool = False,
) -> None:
    from dlstep_kernels.gpu.head import head_and_sample

    hidden, weight = torch.empty(rows, HIDDEN, dtype=dtype), torch.empty(VOCAB, HIDDEN, dtype=dtype)
    settings = _settings(rows, raced, named, masked)
    head_and_sample(hidden, weight, settings, vocab_size=151_936, mask_id=151_666, sampler=sampler)


def _merge(dtype: torch.dtype, width: int, count: int) -> None:
    from dlstep_kernels.gpu.embeddings import merge_embeddings

    table = torch.empty(VOCAB, width, dtype=dtype)
    shares = torch.empty(32, count)
    soft = SoftRows(torch.zeros(32, dtype=torch.int64), torch.zeros(32, count, dtype=torch.int64), shares, shares[:, 0])
    merge_embeddings(torch.empty(64, width, dtype=dtype), table, 3, soft)


def _share(dtype: torch.dtype) -> None:
    from dlstep_kernels.gpu.embeddings import token_shares

    token_shares(torch.empty(32, VOCAB, dtype=dtype), torch.ones(32), cap=30.0)


def _uniform(rows: int) -> None:
    from dlstep_kernels.gpu.draws import uniform

    uniform(torch.zeros(rows, dtype=torch.int64), count=151936)


BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
SAMPLING: list[tuple[str, Callable[[], object], bool, tuple[str, ...]]] = [
    ("sample, 32 rows, bf16", lambda: _sample(32, BF16, PLAIN, False), True, ()),
    ("sample, 1024 rows, fp32", lambda: _sample(1024, FP32, PLAIN, False), False, ()),
    ("sample, 32 rows, fp16, all statistics", lambda: _sample(32, FP16, ALL, False), False, ()),
    ("sample, 32 rows, bf16, noise and all statistics", lambda: _sample(32, BF16, ALL, True), True, ()),
    ("sample, 256 rows, bf16, canvases", lambda: _sample(256, BF16, CANVAS, True), True, ()),
    ("sample, 32 rows, fp32, noise", lambda: _sample(32, FP32, PLAIN, True), False, ()),
    ("head and sample, 1 row, bf16", lambda: _head(1, BF16, PLAIN, False), False, ()),
    ("head and sample, 32 rows, bf16", lambda: _head(32, BF16, PLAIN, False), False, ()),
    ("head and sample, 64 rows, bf16", lambda: _head(64, BF16, PLAIN, False), False, ("_read_head",)),
    ("head and sample, 256 rows, bf16", lambda: _head(256, BF16, PLAIN, False), True, ("_read_head",)),
    ("head and sample, 32 rows, bf16, noise", lambda: _head(32, BF16, PLAIN, True), False, ()),
    ("head and sample, 256 rows, bf16, noise", lambda: _head(256, BF16, PLAIN, True), False, ("_read_head",)),
    ("head and sample, 256 rows, fp16, all", lambda: _head(256, FP16, ALL, True), False, ("_read_head",)),
    ("head and sample, 32 rows, fp32", lambda: _head(32, FP32, PLAIN, False), False, ()),
    ("sample, 32 rows, bf16, named ids", lambda: _sample(32, BF16, PLAIN, True, named=2), False, ()),
    ("head and sample, 32 rows, bf16, named ids", lambda: _head(32, BF16, ALL, True, named=2), True, ()),
    ("head and sample, 32 rows, fp16, named ids", lambda: _head(32, FP16, PLAIN, True, named=2), False, ()),
    ("sample, 32 rows, bf16, masks", lambda: _sample(32, BF16, PLAIN, False, masked=True), False, ()),
    ("sample, 32 rows, bf16, all, masks", lambda: _sample(32, BF16, ALL, True, named=2, masked=True), False, ()),
    ("head and sample, 32 rows, bf16, masks", lambda: _head(32, BF16, PLAIN, False, masked=True), False, ()),
    ("head and sample, 32 rows, fp32, masks", lambda: _head(32, FP32, PLAIN, False, masked=True), False, ()),
    ("head and sample, 32 rows, bf16, noise, masks", lambda: _head(32, BF16, PLAIN, True, masked=True), False, ()),
    *(
        (
            f"head and sample, {rows} rows, bf16{', noise' if raced else ''}, masks",
            lambda rows=rows, raced=raced: _head(rows, BF16, PLAIN, raced, masked=True),
            False,
            ("_read_head",),
        )
        for rows in (64, 256)
        for raced in (False, True)
    ),
    (
        "head and sample, 256 rows, fp16, all, masks",
        lambda: _head(256, FP16, ALL, True, named=2, masked=True),
        False,
        ("_read_head",),
    ),
    ("merge, 1 of 4096, bf16", lambda: _merge(BF16, 4096, 1), True, ()),
    ("merge, 3 of 2048, fp32", lambda: _merge(FP32, 2048, 3), False, ()),
    ("shares of tokens, bf16", lambda: _share(BF16), True, ()),
    ("shares of tokens, fp32", lambda: _share(FP32), False, ()),
    ("uniform numbers, 32 rows", lambda: _uniform(32), True, ()),
]
