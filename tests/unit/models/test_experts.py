"""How the products of experts are computed."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from dlstep.models import load_checkpoint

from ...helpers.tiny_families import write_checkpoint


def experts_of(network: nn.Module) -> str:
    config: Any = network.config
    return config.get_text_config()._experts_implementation


@pytest.mark.parametrize("family", ["sdar_moe", "llada2", "diffusion_gemma"])
def test_experts_are_multiplied_as_a_group_where_torch_can(family: str, tmp_path: Path) -> None:
    write_checkpoint(tmp_path, family)
    assert experts_of(load_checkpoint(tmp_path, model_name=family).network) == "grouped_mm"
    assert experts_of(load_checkpoint(tmp_path, dtype=torch.float64, model_name=family).network) == "eager"


def test_experts_whose_rows_do_not_align_are_multiplied_one_by_one(tmp_path: Path) -> None:
    reference, _ = write_checkpoint(tmp_path, "sdar_moe", moe_intermediate_size=7)
    network: Any = load_checkpoint(tmp_path).network
    assert experts_of(network) == "eager"
    network.set_attn_implementation("sdpa")
    reference.set_experts_implementation("eager")
    ids = torch.arange(9)[None]
    torch.testing.assert_close(network(ids).logits, reference(ids).logits, atol=2e-5, rtol=0)
