"""How the products of experts are computed."""

import pytest
import torch
from torch import nn
from transformers import DiffusionGemmaTextConfig, Glm4MoeConfig
from transformers.models.diffusion_gemma.modeling_diffusion_gemma import DiffusionGemmaTextExperts
from transformers.models.glm4_moe.modeling_glm4_moe import Glm4MoeExperts

from dlstep.models import load_checkpoint
from dlstep.models.layers import EXPERTS, fits

from ...helpers.tiny_families import write_checkpoint


def experts_of(network):
    config = network.config
    return config.get_text_config()._experts_implementation


@pytest.mark.parametrize("family", ["sdar_moe", "llada2", "diffusion_gemma"])
def test_experts_are_multiplied_as_a_group_where_torch_can(family, tmp_path):
    write_checkpoint(tmp_path, family)
    assert experts_of(load_checkpoint(tmp_path, family=family).network) == "grouped_mm"
    assert experts_of(load_checkpoint(tmp_path, dtype=torch.float64, family=family).network) == "eager"


def test_experts_whose_rows_do_not_align_are_multiplied_one_by_one(tmp_path):
    reference, _ = write_checkpoint(tmp_path, "sdar_moe", moe_intermediate_size=7)
    network = load_checkpoint(tmp_path).network
    assert experts_of(network) == "eager"
    network.set_attn_implementation("sdpa")
    reference.set_experts_implementation("eager")
    ids = torch.arange(9)[None]
    torch.testing.assert_close(network(ids).logits, reference(ids).logits, atol=2e-5, rtol=0)


def glm(**facts):
    sizes = {"n_routed_experts": 5, "hidden_size": 24, "moe_intermediate_size": 16, "num_experts_per_tok": 2}
    return Glm4MoeExperts(Glm4MoeConfig(**sizes, **facts))


def gemma(**facts):
    sizes = {"num_experts": 5, "hidden_size": 24, "moe_intermediate_size": 16, "top_k_experts": 2}
    return DiffusionGemmaTextExperts(DiffusionGemmaTextConfig(**sizes, **facts))


@torch.no_grad()
@pytest.mark.parametrize("make", [glm, gemma])
def test_answers_what_experts_of_transformers_answer(make):
    experts, generator = make(), torch.Generator().manual_seed(0)
    for weight in experts.parameters():
        weight.copy_(torch.randn(weight.shape, generator=generator) / 4)
    hidden, weights = torch.randn(11, 24, generator=generator), torch.rand(11, 2, generator=generator)
    chosen = torch.rand(11, 5, generator=generator).topk(2).indices
    answers = []
    for experts.config._experts_implementation in ("eager", EXPERTS):
        answers.append(experts(hidden, chosen, weights))
    torch.testing.assert_close(*answers, atol=1e-5, rtol=1e-5)


class Clamped(Glm4MoeExperts):
    """With a gate of its own."""

    def _apply_gate(self, both):
        return both.chunk(2, dim=-1)[0].clamp(max=7.0)


def test_experts_that_compute_otherwise_are_left_alone():
    assert fits(glm()) and fits(gemma())
    biased = glm()
    biased.has_bias = True
    for other in (biased, glm(hidden_act="relu"), Clamped(biased.config), nn.Linear(2, 2)):
        assert not fits(other)
