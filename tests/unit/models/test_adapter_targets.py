"""Which modules an adapter is for, by peft's own functions."""

from pathlib import Path
from typing import Any

import pytest
from peft import LoraConfig
from peft.tuners.tuners_utils import check_target_module_exists
from peft.utils.other import get_pattern_key

from dlstep.models.adapter import Adapter

PARTS = ("self_attn.q_proj", "self_attn.k_proj", "mlp.up_proj", "mlp.experts.1.up_proj", "mlp.experts.11.down_proj")
NAMES = [f"{stem}.{layer}.{part}" for stem in ("model.layers", "blocks", "a.b") for layer in (0, 1, 11) for part in PARTS]
NAMES += ["q_proj", "lm_head", "model.embed_tokens", "model.layers.q_proj", "1.q_proj", "layers.1.q_proj"]
CHOICES: list[dict[str, Any]] = [
    {"target_modules": ["q_proj", "1.up_proj"]},
    {"target_modules": ["model.layers.1.self_attn.q_proj", "lm_head"]},
    {"target_modules": r".*\.(q|k)_proj"},
    {"target_modules": r"model\.layers\.1\..*|lm_head"},
    {"target_modules": r"(?i).*\.Q_PROJ"},
    {"target_modules": ["q_proj", "up_proj"], "exclude_modules": r".*\.1\..*"},
    {"target_modules": ["q_proj", "up_proj"], "exclude_modules": ["1.up_proj"]},
    {"target_modules": ["q_proj", "up_proj"], "layers_to_transform": [1, 11]},
    {"target_modules": ["q_proj", "up_proj"], "layers_to_transform": 1},
    {"target_modules": ["q_proj", "up_proj"], "layers_to_transform": []},
    {"target_modules": ["q_proj", "up_proj"], "layers_to_transform": [1], "layers_pattern": "layers"},
    {"target_modules": ["q_proj", "up_proj"], "layers_to_transform": [1], "layers_pattern": ["blocks", "experts"]},
    {"target_modules": ["up_proj"], "modules_to_save": ["mlp.experts", "lm_head"]},
    {"target_modules": ["q_proj"], "modules_to_save": ["self_att"]},
    {"target_modules": r".*_proj", "modules_to_save": [r"model\.layers\.1"]},
]
KEYS = [
    ["q_proj"],
    ["1.self_attn.q_proj", "q_proj"],
    [r".*\.1\..*"],
    ["proj"],
    ["k_proj|q_proj"],
    [r"layers\.\d+\.mlp\..*", "up_proj"],
]


def adapter_of(**options: Any) -> Adapter:
    return Adapter(Path("adapter"), LoraConfig(r=3, lora_alpha=5, **options), {}, {})


@pytest.mark.parametrize("options", CHOICES)
def test_the_modules_are_those_of_peft(options: dict[str, Any]) -> None:
    adapter = adapter_of(**options)
    theirs = {name for name in NAMES if check_target_module_exists(adapter.config, name)}
    assert {name for name in NAMES if adapter.targets(name)} == theirs
    assert 0 < len(theirs) < len(NAMES)


@pytest.mark.parametrize("keys", KEYS)
def test_ranks_are_those_of_peft(keys: list[str]) -> None:
    table = {key: number + 7 for number, key in enumerate(keys)}
    adapter = adapter_of(target_modules=["q_proj"], rank_pattern=table, alpha_pattern=table)
    for name in NAMES:
        theirs = table.get(get_pattern_key(keys, name))
        assert (adapter.rank(name), adapter.alpha(name)) == (theirs or 3, float(theirs or 5))
