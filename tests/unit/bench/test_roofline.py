"""Bytes and operations of a forward."""

import torch

from dlstep.bench.decode_shape import DecodeLoad, DecodeRow
from dlstep.bench.roofline import Need, need_of, network_of, touched
from dlstep.bench.shapes import expert_stacks, random_checkpoint
from dlstep.core import Grid, Plan, SamplingParams, Span

from .test_decode_shape import (
    seeded,  # noqa: F401  # pyright: ignore[reportUnusedImport]
    shrunk,
)

CPU, FP32 = torch.device("cpu"), torch.float32


def test_bytes_and_operations_of_a_forward() -> None:
    network = network_of(random_checkpoint(shrunk("llada2-mini"), CPU, FP32).network)
    span = Span(0, 0, 96, (0,) * 32, 128, Grid(0, 32), tuple(range(100, 128)), (0,) * 28, SamplingParams(), 0)
    assert (network.expert_count, network.chosen, network.heads) == (16, 2, 4)
    assert network.experts == 16 * 3 * 64 * 32  # the first layer has none
    share = 1 - (14 / 16) ** 32
    weights = network.dense + share * network.experts + 300 * 64
    cached = 2 * 2 * 128 * 2 * 16
    flops = 2 * 32 * (network.dense + network.experts / 8) + 2 * 28 * 300 * 64 + 2 * 4 * 32 * 128 * 4 * 16
    assert need_of(network, Plan(0, 0, (span,))) == Need(4 * (weights + cached), flops)


def test_random_rows_choose_as_many_experts_as_is_counted() -> None:
    """Masked positions, too."""
    checkpoint = random_checkpoint(shrunk("llada2-mini"), CPU, FP32)
    decode = DecodeRow(checkpoint, shrunk("llada2-mini").strategy(2.5), DecodeLoad(1, 96), enforce_eager=True)
    decode.prefill()
    seen: list[float] = []
    for module in checkpoint.network.modules():
        if type(module).__name__.endswith("Experts"):
            module.register_forward_pre_hook(lambda _, given: seen.append(len(given[1].unique()) / 16))
    plan, _, _ = decode.step()
    rows = sum(len(span.tokens) for span in plan.spans)
    assert len(seen) == len(expert_stacks(checkpoint.network)) // 2
    assert sum(seen) / len(seen) >= 0.9 * touched(network_of(checkpoint.network), rows)
