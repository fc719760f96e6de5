"""A training run is a function of the recipe and the seed, paused or not."""

from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM, DiffusionGemmaForBlockDiffusion

from training.recipes import RECIPES, Stage
from training.train import STATE_NAME, Run, train


def shortened(recipe):
    """A recipe of six steps on small batches."""
    stages = (Stage("alone", 3, 1.0, 1.0, 0.0, 0.0), Stage("together", 3, 1.0, 0.1, 1.0, 1.0))
    return replace(recipe, stages=stages, batch_places=512, warm_up_steps=2)


@pytest.fixture(autouse=True)
def one_thread():
    """Sums of several threads may come in any order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


QUICK = ("tiny-bd", "tiny-joint", "tiny-canvas")  # a model of blocks, one in float32, and one of canvases
PICKED = [
    pytest.param(recipe, id=recipe.name, marks=() if recipe.name in QUICK else pytest.mark.stress)
    for recipe in RECIPES.values()
]


@pytest.mark.parametrize("recipe", PICKED)
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path, recipe):
    short = shortened(recipe)
    whole = train(short, tmp_path / "whole", Run(seed=3))
    paused = train(short, tmp_path / "parts", Run(seed=3, steps=3))
    assert paused.step == 3
    assert (tmp_path / "parts" / STATE_NAME).exists()
    resumed = train(short, tmp_path / "parts", Run(seed=3, resume=True))
    assert resumed.step == whole.step == short.steps
    assert resumed.readings[-1].loss == whole.readings[-1].loss
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name]), name
    assert not (tmp_path / "parts" / STATE_NAME).exists()
    weights = [(tmp_path / run / "model.safetensors").read_bytes() for run in ("whole", "parts")]
    assert weights[0] == weights[1]
    network = DiffusionGemmaForBlockDiffusion if recipe.lesson == "random canvas" else AutoModelForCausalLM
    network.from_pretrained(tmp_path / "parts")
    assert f"# {recipe.name}" in (tmp_path / "parts" / "README.md").read_text()
