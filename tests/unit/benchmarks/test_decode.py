"""Decoding of random weights in the shapes of checkpoints: the script, the rows, and their ratio to the roofline."""

import pytest
import torch

from benchmarks.decode import DecodeLoad, measure_shape
from benchmarks.device import Ceilings
from benchmarks.shapes import SHAPES

from ...helpers.shapes import shrunk

CPU, CEILINGS = torch.device("cpu"), Ceilings(1e10, 1e11)


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_takes_what_the_script_says(name):
    load = DecodeLoad(batch=2, context=96, tokens_per_forward=2.5, steps=16)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        (row,) = measure_shape(shrunk(name), [load], device=CPU, dtype=torch.float32, ceilings=CEILINGS)
    # A canvas of 16 has six forwards, and one more that encodes it. Random tokens are never those that a draft predicted.
    expected = {"diffusion-gemma-26b": 16 / 7, "nemotron-8b-drafts": 0.5, "nemotron-8b-ar": 1.0}.get(name, 2.5)
    assert row["tokens_per_step"] == pytest.approx(expected, abs=0.16)
    assert row["ratio"] == row["step_us"] / row["roofline_us"]
