"""A network with our choice of experts computes what its class does."""

import pytest
import torch
from transformers import Glm4MoeConfig, Glm4MoeForCausalLM, PreTrainedModel
from transformers.models.diffusion_gemma.configuration_diffusion_gemma import DiffusionGemmaTextConfig
from transformers.models.diffusion_gemma.modeling_diffusion_gemma import DiffusionGemmaTextRouter
from transformers.models.glm4_moe.modeling_glm4_moe import Glm4MoeTopkRouter

from dlstep.models import layers
from dlstep.models.layers import install_routers

from ...helpers.tiny_families import write_checkpoint


@pytest.mark.parametrize("normalised", [True, False])
@torch.inference_mode()
def test_logits_are_the_same(normalised, monkeypatch, tmp_path):
    network, _ = write_checkpoint(tmp_path, "llada2", norm_topk_prob=normalised)
    routers = [module for module in network.modules() if isinstance(module, Glm4MoeTopkRouter)]
    ids = torch.arange(3, 21).reshape(2, 9)
    expected = network(ids).logits
    asked = []
    choose = layers._choose_experts

    def counted(hidden, *given, **options):
        asked.append(len(hidden))
        return choose(hidden, *given, **options)

    monkeypatch.setattr(layers, "_choose_experts", counted)
    install_routers(network)
    torch.testing.assert_close(network(ids).logits, expected, atol=1e-5, rtol=0)
    assert asked == [18] * len(routers) == [18] * 2


def test_a_router_has_the_dtype_of_its_network():
    """The kernel reads no others; transformers creates it in float32 since 5.24."""
    config = Glm4MoeConfig(
        vocab_size=8, hidden_size=8, intermediate_size=8, moe_intermediate_size=8, num_hidden_layers=1, num_attention_heads=1,
        num_key_value_heads=1, head_dim=8, n_routed_experts=4, num_experts_per_tok=1, first_k_dense_replace=0,
    )  # fmt: skip
    network = Glm4MoeForCausalLM._from_config(config, dtype=torch.bfloat16)
    (router,) = [module for module in network.modules() if isinstance(module, Glm4MoeTopkRouter)]
    router.weight = torch.nn.Parameter(router.weight.float())
    install_routers(network)
    assert router.weight.dtype == torch.bfloat16


@torch.inference_mode()
def test_a_softmax_router_answers_like_its_class():
    torch.manual_seed(0)
    config = DiffusionGemmaTextConfig(hidden_size=32, num_experts=16, top_k_experts=4)
    network = PreTrainedModel(config)
    network.router = router = DiffusionGemmaTextRouter(config)
    for parameter in router.parameters():
        parameter.normal_()
    hidden = torch.randn(9, 32)
    _, weights, chosen = router(hidden)
    install_routers(network)
    assert type(router) is layers.SoftmaxRouter
    _, own_weights, own = router(hidden)
    assert torch.equal(own, chosen)
    torch.testing.assert_close(own_weights, weights)
