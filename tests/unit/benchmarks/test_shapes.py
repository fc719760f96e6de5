"""The shapes of published checkpoints."""

import pytest

from benchmarks.shapes import SHAPES, parameter_count

# As the model cards state them, in billions; of DiffusionGemma without its vision tower.
SIZES = {
    "llada-8b": 8.02,
    "sdar-1.7b": 1.72,
    "sdar-8b": 8.19,
    "sdar-30b-a3b": 30.5,
    "llada2-mini": 16.3,
    "llada2-flash": 103,
    "dream-7b": 7.62,
    "fast-dllm-v2-1.5b": 1.54,
    "nemotron-8b": 8.49,
    "nemotron-8b-drafts": 8.49,
    "nemotron-8b-ar": 8.49,
    "diffusion-gemma-26b": 25.2,
}


def test_every_shape_has_the_published_number_of_parameters():
    assert {name: parameter_count(shape) / 1e9 for name, shape in SHAPES.items()} == pytest.approx(SIZES, rel=0.005)
