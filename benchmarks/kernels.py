"""Time every kernel on realistic inputs against the limits of the device; `tests/gpu` compares kernels with plain torch.

`least_us` is the minimum time at the measured ceilings, for the smallest possible number of bytes and operations;
`share` is `least_us` / `us`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dlstep_kernels.attention import Spans, store_kv
from dlstep_kernels.embeddings import RENORMALIZED, SoftRows, merge_embeddings
from dlstep_kernels.experts import mix_experts
from dlstep_kernels.head import head_and_sample
from dlstep_kernels.quantization import FP8, quantize_rows
from dlstep_kernels.routing import choose_experts
from dlstep_kernels.sampling import Noise, SamplerConfig, Settings, TokenMasks, sample
from dlstep_kernels.tiles import lay_tiles, tiled_attention

from . import entry
from .device import Ceilings, kernel_device, measure_ceilings, timed_us
from .roofline import Need

PAGE_SIZE = 32
SETS = 4  # sets of inputs, used in turn


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of the cases: requests, their context and rows; sampled rows; vocabulary and hidden size."""

    batch: int = 8
    context: int = 4096
    rows: int = 32
    sampled: int = 256
    vocabulary: int = 151936
    hidden: int = 4096


USUAL = Sizes()


@dataclass(frozen=True, slots=True)
class KernelCase:
    """A kernel with inputs that `calls` use in turn; each call needs `need`."""

    kernel: str
    name: str
    calls: list[Callable[[], Any]]
    need: Need


def cases(device: torch.device, dtype: torch.dtype, sizes: Sizes = USUAL) -> Iterator[KernelCase]:
    """Yield all cases, one at a time because their inputs take much memory."""
    small = sizes.context < 1024
    for label, heads, kv_heads, head_dim in (
        ("heads 32/8 of 128", 32, 8, 128),
        ("heads 28/4 of 128", 28, 4, 128),
        ("heads 16/4 of 128", 16, 4, 128),
        ("heads 16/2 of 512", 16, 2, 512),
    )[: 2 if small else 4]:
        yield attention(device, dtype, sizes, label, (heads, kv_heads, head_dim))
    for stored in (dtype, FP8):
        label = f"heads 32/8 of 128, pages in {stored}"
        yield attention(device, dtype, replace(sizes, batch=4 * sizes.batch), label, (32, 8, 128), stored=stored)
    for context, batch in () if small else product((sizes.context // 8, sizes.context), (1, sizes.batch, 4 * sizes.batch)):
        wide = replace(sizes, batch=batch, rows=4 * sizes.rows, context=context)
        yield attention(device, dtype, wide, "heads 32/8 of 128", (32, 8, 128))
    yield store(device, dtype, sizes)
    for name in ("greedy", "greedy, masked", "gumbel, entropy", "gumbel, entropy, masked"):
        yield sampled(device, dtype, sizes, name)
    for count in (sizes.sampled, max(1, sizes.sampled // 8)):
        yield headed(device, dtype, sizes, count)
    yield merged(device, dtype, sizes)
    for rows in (130, 1040, 4160):
        yield routed(device, dtype, *((max(1, rows // 130), 12, 32) if small else (rows, 256, 2048)))
        for quantized in (False, True):
            size = (max(1, rows // 130), 4, 32, 16, 2) if small else (rows, 256, 2048, 512, 8)
            yield mixed(device, dtype, *size, quantized=quantized)


def _random(device: torch.device, dtype: torch.dtype, *size: int) -> Tensor:
    return torch.empty(size, dtype=dtype, device=device).normal_()


def attention(
    device: torch.device,
    dtype: torch.dtype,
    sizes: Sizes,
    label: str,
    heads: tuple[int, int, int],
    *,
    stored: torch.dtype | None = None,
) -> KernelCase:
    """Return a decode step's attention, in which every row attends to the whole context, over pages of dtype `stored`."""
    (of_queries, of_keys, head_dim), batch, rows, context = heads, sizes.batch, sizes.rows, sizes.context
    width, total = -(-context // PAGE_SIZE), batch * rows
    order = np.random.default_rng(0).permutation(SETS * batch * width).reshape(SETS, batch, width)
    size = (order.size * PAGE_SIZE + 1, of_keys, head_dim)
    keys, values = (_random(device, dtype, *size).to(stored or dtype) for _ in range(2))
    queries = _random(device, dtype, total, of_queries, head_dim)
    whole, group = np.full(batch, context), of_queries // of_keys
    spans = [Spans(np.full(batch, rows), whole, tables, np.full(total, context), None, PAGE_SIZE) for tables in order]
    tiles = [lay_tiles(each, group=group, device=device) for each in spans]
    scale = head_dim**-0.5
    moved = 2 * (batch * context * of_keys * keys.itemsize + total * of_queries * dtype.itemsize) * head_dim

    return KernelCase(
        "attention",
        f"{label}, batch {batch}, {rows} rows, context {context}",
        [lambda each=each: tiled_attention.kernel(queries, keys, values, each, scale=scale) for each in tiles],
        Need(moved, 4.0 * total * context * of_queries * head_dim),
    )


def store(device: torch.device, dtype: torch.dtype, sizes: Sizes) -> KernelCase:
    """Return the case of storing keys and values, with heads before rows, as models produce them."""
    rows, heads, head_dim = 4 * sizes.batch * sizes.rows, 8, 128
    keys, values = (_random(device, dtype, heads, rows, head_dim).transpose(0, 1) for _ in range(2))
    pages = torch.zeros((2, SETS * rows + 1, heads, head_dim), dtype=dtype, device=device)
    slots = torch.randperm(SETS * rows, device=device).view(SETS, rows)

    calls = [lambda where=where: store_kv.kernel(keys, values, pages[0], pages[1], where) for where in slots]
    return KernelCase("store_kv", f"{rows} rows, {heads} heads of {head_dim}", calls, Need(4 * keys.nbytes))


def _settings(name: str, rows: int, device: torch.device) -> tuple[Settings, SamplerConfig]:
    if name == "greedy":
        return Settings(), SamplerConfig()
    seeds, positions, draws = torch.randint(0, 1 << 20, (3, rows), device=device)
    hot = torch.full((rows,), 0.8, device=device)
    return Settings(temperatures=hot, noise=Noise(seeds, positions, draws)), SamplerConfig(frozenset({"entropy"}), best=1)


def sampled(device: torch.device, dtype: torch.dtype, sizes: Sizes, name: str) -> KernelCase:
    """Return the case of sampling tokens and probabilities from logits."""
    rows, vocabulary = sizes.sampled, sizes.vocabulary
    sets = [_random(device, dtype, rows, vocabulary) * 3 for _ in range(SETS)]
    settings, sampler = _settings(name.removesuffix(", masked"), rows, device)
    if name.endswith(", masked"):  # half of the ids, a different half in each row
        words = torch.randint(-(1 << 31), 1 << 31, (rows, -(-vocabulary // 32)), device=device, dtype=torch.int32)
        settings = replace(settings, masks=TokenMasks(words, torch.arange(rows, device=device)))
    options = {"vocab_size": vocabulary - 1, "mask_id": vocabulary - 2, "sampler": sampler}

    calls = [lambda logits=logits: sample.kernel(logits, settings, **options) for logits in sets]
    return KernelCase("sample", f"{name}, {rows} rows of {vocabulary}", calls, Need(sets[0].nbytes))


def headed(device: torch.device, dtype: torch.dtype, sizes: Sizes, count: int) -> KernelCase:
    """Return the case of greedy sampling from hidden states and the head's weight."""
    weight = _random(device, dtype, sizes.vocabulary, sizes.hidden) * 0.05
    sets = [_random(device, dtype, count, sizes.hidden) for _ in range(SETS)]
    options: dict[str, Any] = {"vocab_size": sizes.vocabulary - 1, "mask_id": sizes.vocabulary - 2}
    calls = [lambda hidden=hidden: head_and_sample.kernel(hidden, weight, Settings(), **options) for hidden in sets]
    need = Need(weight.nbytes + sets[0].nbytes, 2.0 * count * weight.numel())
    return KernelCase("head_and_sample", f"{count} rows of {sizes.hidden}, {sizes.vocabulary} ids", calls, need)


def merged(device: torch.device, dtype: torch.dtype, sizes: Sizes) -> KernelCase:
    """Return a case in which half of the rows are blends of a token with the mask."""
    rows, width = sizes.batch * sizes.rows, sizes.hidden // 2
    table, embedded = _random(device, dtype, sizes.vocabulary, width), _random(device, dtype, rows, width)
    soft = torch.arange(0, rows, 2, device=device)
    ids = torch.randint(0, sizes.vocabulary, (SETS, len(soft), 1), device=device)
    shares = torch.rand((len(soft), 1), device=device)
    sets = [SoftRows(soft, each, shares, torch.full_like(soft, RENORMALIZED), 1.0 - shares[:, 0]) for each in ids]
    calls = [lambda each=each: merge_embeddings.kernel(embedded, table, 0, each) for each in sets]
    need = Need(2.0 * embedded.nbytes + len(soft) * width * dtype.itemsize)
    return KernelCase("merge_embeddings", f"{len(soft)} of {rows} rows of {width}", calls, need)


def mixed(
    device: torch.device, dtype: torch.dtype, rows: int, experts: int, hidden: int, inner: int, count: int, *, quantized: bool
) -> KernelCase:
    """Return the case of a layer's experts, in FP8 if `quantized`; each row uses `count` of them, evenly distributed."""
    gate_up = _random(device, dtype, experts, 2 * inner, hidden) * hidden**-0.5
    down = _random(device, dtype, experts, hidden, inner) * inner**-0.5
    chosen = torch.rand((SETS, rows, experts), device=device).topk(count).indices
    weights = torch.rand((rows, count), device=device).softmax(-1)
    states = _random(device, dtype, rows, hidden)
    scales = ()
    if quantized:
        stacks = [quantize_rows(stack.flatten(0, 1)) for stack in (gate_up, down)]
        scales = stacks[0][1].view(experts, -1), stacks[1][1].view(experts, -1)
        gate_up, down = stacks[0][0].view(gate_up.shape), stacks[1][0].view(down.shape)

    touched = sum(len(each.unique()) for each in chosen) / SETS / experts
    return KernelCase(
        "mix_experts",
        f"{rows} rows of {hidden}, {count} of {experts} experts of {inner}" + (", FP8" if quantized else ""),
        [
            lambda each=each: mix_experts.kernel(states, each, weights, gate_up, down, *scales, activation="silu")
            for each in chosen
        ],
        Need(
            touched * (gate_up.nbytes + down.nbytes) + 2 * states.nbytes,
            6.0 * rows * count * hidden * inner * (0.5 if quantized else 1.0),
        ),
    )


def routed(device: torch.device, dtype: torch.dtype, rows: int, experts: int, hidden: int) -> KernelCase:
    """Return the case of expert routing, compared by the scores of the chosen experts and their weights."""
    weight, bias = _random(device, dtype, experts, hidden) * hidden**-0.5, torch.zeros(experts, device=device)
    sets = [_random(device, dtype, rows, hidden) for _ in range(SETS)]
    groups, kept, count = (4, 2, 4) if experts < 64 else (8, 4, 8)
    options: dict[str, Any] = {"groups": groups, "kept_groups": kept, "count": count, "normalised": True, "scale": 2.5}

    return KernelCase(
        "choose_experts",
        f"{rows} rows of {hidden}, {count} of {experts} experts",
        [lambda states=states: choose_experts.kernel(states, weight, bias, **options) for states in sets],
        Need(weight.nbytes + sets[0].nbytes + 12 * rows * count, 2.0 * rows * weight.numel()),
    )


def measure_kernels(sizes: Sizes = USUAL, ceilings: Ceilings | None = None) -> Iterator[dict[str, Any]]:
    """Yield a row for each case, in bfloat16. Raises ValueError without a CUDA device."""
    device, dtype = kernel_device(), torch.bfloat16
    torch.manual_seed(0)
    ceilings = ceilings or measure_ceilings(device, dtype)
    for case in cases(device, dtype, sizes):
        us = timed_us(case.calls, device)
        least = ceilings.least_us(case.need.moved, case.need.flops)
        yield {
            "kernel": case.kernel,
            "case": case.name,
            "us": us,
            "least_us": least,
            "share": least / us,
            "moved_mb": case.need.moved / 1e6,
            "gflop": case.need.flops / 1e9,
            "copy_gb_s": ceilings.bytes_per_s / 1e9,
            "matmul_tflop_s": ceilings.flops_per_s / 1e12,
        }


if __name__ == "__main__":
    entry.run(__doc__, measure_kernels, ("kernel", "case", "us", "least_us", "share"))
