"""Decoding of random weights in the shapes of checkpoints: the script, the rows, and the least bytes and operations."""

import pytest
import torch

from benchmarks.decode import DecodeLoad, measure_shape
from benchmarks.device import Ceilings
from benchmarks.roofline import Need, need_of, network_of
from benchmarks.shapes import SHAPES, random_checkpoint
from dlstep.core import Grid, Plan

from ...helpers.shapes import shrunk
from ...helpers.spans import span_with

CPU, FP32 = torch.device("cpu"), torch.float32
CEILINGS = Ceilings(1e10, 1e11)


@pytest.fixture(autouse=True)
def seeded():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_takes_what_the_script_says(name):
    load = DecodeLoad(batch=2, context=96, tokens_per_forward=2.5, steps=16)
    (row,) = measure_shape(shrunk(name), [load], device=CPU, dtype=FP32, ceilings=CEILINGS)
    # A canvas of 16 has six forwards, and one more that encodes it. Random tokens are never those that a draft predicted.
    expected = {"diffusion-gemma-26b": 16 / 7, "nemotron-8b-drafts": 0.5, "nemotron-8b-ar": 1.0}.get(name, 2.5)
    assert row["tokens_per_step"] == pytest.approx(expected, abs=0.16)
    assert row["batch"] == 2
    assert row["rows"] >= 2
    assert row["ratio"] == row["step_us"] / row["roofline_us"]
    assert row["idle"] is None


def test_bytes_and_operations_of_a_forward():
    network = network_of(random_checkpoint(shrunk("llada2-mini"), CPU, FP32).network)
    span = span_with(start=96, tokens=(0,) * 32, end=128, grid=Grid(0, 32), sampled=tuple(range(100, 128)), draws=(0,) * 28)
    assert (network.expert_count, network.chosen, network.heads) == (16, 2, 4)
    assert network.experts == 16 * 3 * 64 * 32  # the first layer has none
    share = 1 - (14 / 16) ** 32
    weights = network.dense + share * network.experts + 300 * 64
    cached = 2 * 2 * 128 * 2 * 16
    flops = 2 * 32 * (network.dense + network.experts / 8) + 2 * 28 * 300 * 64 + 2 * 4 * 32 * 128 * 4 * 16
    assert need_of(network, Plan(0, 0, (span,))) == Need(4 * (weights + cached), flops)
