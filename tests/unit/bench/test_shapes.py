"""Shapes are those of the checkpoints."""

import pytest
import torch

from dlstep.bench.roofline import network_of
from dlstep.bench.shapes import SHAPES, random_checkpoint, shape_of, shortened

from .test_decode_shape import seeded  # noqa: F401  # pyright: ignore[reportUnusedImport]


def test_shapes_are_those_of_the_checkpoints() -> None:
    """Parameters without an embedding that is not read, in billions, as their authors count them."""
    published = {"sdar-1.7b": 1.72, "sdar-8b": 7.57, "llada2-mini": 15.93, "dream-7b": 7.07, "fast-dllm-v2-1.5b": 1.54}
    for name, billions in published.items():
        with torch.device("meta"):
            made = network_of(random_checkpoint(SHAPES[name], torch.device("meta"), torch.bfloat16).network)
        assert (made.dense + made.experts + made.head) / 1e9 == pytest.approx(billions, rel=0.01), name


def test_fewer_layers_and_unknown_names() -> None:
    assert shortened(SHAPES["sdar-8b"], 2).facts["num_hidden_layers"] == 2
    assert SHAPES["sdar-8b"].facts["num_hidden_layers"] == 36
    with pytest.raises(ValueError, match="between 1 and the 36 of sdar-8b, got 37"):
        shortened(SHAPES["sdar-8b"], 37)
    with pytest.raises(ValueError, match=r"--shape must be one of sdar-1\.7b, "):
        shape_of("sdar")
