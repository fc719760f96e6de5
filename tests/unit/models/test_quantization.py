"""FP8 networks: which layers are quantized, what the networks compute, and what is refused."""

# Values of other types are given on purpose; the driver is a `TorchDriver`.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false

import numpy as np
import pytest
import torch
from torch import nn

from dlstep import LLM, SamplingParams, tiny
from dlstep.distributed.ranks import Ranks
from dlstep.models import load_checkpoint
from dlstep.models.compiled import compile_layers
from dlstep.models.layers import SCALES
from dlstep.models.quantization import QuantizedLinear, quantize
from dlstep_kernels import quantize_rows, scaled_linear
from dlstep_kernels.quantization import FP8, LARGEST
from training.stories import score

from ...helpers.ranks_running import run_ranks
from ...helpers.tiny_configs import FACTS
from ...helpers.tiny_families import write_checkpoint
from .test_compiled import PROMPTS, Recorder

LIMIT = SamplingParams(max_tokens=12, ignore_eos=True)


@pytest.fixture(autouse=True)
def nothing_compiled_before():
    torch.compiler.reset()


def back(weight, scales):
    """Return the dequantized weight."""
    return weight.float() * scales[..., None]


@pytest.mark.parametrize("family", list(FACTS))
def test_quantize_converts_only_decoder_layers_and_experts(family, tmp_path):
    write_checkpoint(tmp_path, family)
    plain, network = (load_checkpoint(tmp_path, family=family).network for _ in range(2))
    quantize(network)
    assert network.dtype == torch.float32, "the network's dtype is that of the embedding"
    before = dict(plain.named_parameters(remove_duplicate=False))
    of_layers = 0
    for name, parameter in network.named_parameters(remove_duplicate=False):
        owner = network.get_submodule(name.rpartition(".")[0])
        if parameter.dtype != FP8:
            assert torch.equal(parameter, before[name]), name
            kept = type(owner) is nn.Linear and ".layers." in name
            assert not kept or "router" in name or "vision" in name, name
            continue
        assert ".layers." in name and "router" not in name and "vision" not in name
        scales = owner.scales if isinstance(owner, QuantizedLinear) else owner.get_buffer(SCALES[name.rpartition(".")[2]])
        apart = (back(parameter, scales) - before[name]).abs()
        assert (apart <= before[name].abs() / 16 + scales[..., None] * 2**-9).all(), name
        assert (parameter.float().abs().amax(-1) == LARGEST).all()
        of_layers += 1
    assert of_layers >= 7


def test_tied_weights_stay_tied(tmp_path):
    """The encoder and the decoder of DiffusionGemma share their layers."""
    write_checkpoint(tmp_path, "diffusion_gemma")
    network = load_checkpoint(tmp_path, family="diffusion_gemma").network
    quantize(network)
    encoder, decoder = network.model.encoder.language_model.layers[0], network.model.decoder.layers[0]
    assert encoder.mlp.up_proj.weight is decoder.mlp.up_proj.weight
    assert encoder.mlp.up_proj.scales is decoder.mlp.up_proj.scales
    assert encoder.experts.down_proj is decoder.experts.down_proj and encoder.experts.down_scales is decoder.experts.down_scales


@torch.no_grad()
@pytest.mark.parametrize("family", ["sdar", "stable_diffcoder", "dream"])
def test_logits_match_dequantized_weights_and_inputs(family, tmp_path):
    write_checkpoint(tmp_path, family)
    rounded, network = (load_checkpoint(tmp_path, family=family).network for _ in range(2))
    quantize(network)
    for name, module in network.named_modules():
        if isinstance(module, QuantizedLinear):
            other = rounded.get_submodule(name)
            other.get_parameter("weight").copy_(back(module.weight, module.scales))
            other.register_forward_pre_hook(lambda _, inputs: back(*quantize_rows(inputs[0][0]))[None])
    ids = torch.arange(3, 40)[None]
    rounded.set_attn_implementation("sdpa")
    network.set_attn_implementation("sdpa")
    expected, found = rounded(ids).logits, network(ids).logits
    # Sums in another order occasionally round an input to the neighbouring FP8 number.
    assert float((found - expected).norm() / expected.norm()) < 1e-3


@pytest.mark.full
def test_compiled_quantized_layers_compute_merged_products_once(tmp_path):
    write_checkpoint(tmp_path, "sdar", seed=1)
    options = {"family": "sdar", "max_model_len": 64, "quantization": "fp8"}
    plain, fast = (LLM(str(tmp_path), **options) for _ in range(2))
    recorder = Recorder()
    compile_layers(fast.engine.driver.network.model, backend=recorder)
    expected, found = (llm.generate(PROMPTS, LIMIT) for llm in (plain, fast))
    assert [output.token_ids for output in found] == [output.token_ids for output in expected]
    assert sum(node.target is scaled_linear for graph in recorder.graphs for node in graph.graph.nodes) == 4
    assert recorder.products == 0


@pytest.mark.full
@pytest.mark.parametrize("option", ["quantization", "kv_cache_dtype"])
def test_fp8_keeps_the_accuracy_of_an_embedded_model(option):
    problems = tiny.problems(200, seed=5)
    rights = []
    for value in (None, "fp8"):
        llm = LLM("tiny-bd", accept_threshold=0.95, **{option: value})
        outputs = llm.generate([one.prompt for one in problems], SamplingParams(max_tokens=48))
        rights.append(sum(score(one, output.text).answer for one, output in zip(problems, outputs, strict=True)) / 200)
    assert abs(rights[1] - rights[0]) <= 0.02 and min(rights) > 0.9


def test_unsupported_quantizations_and_devices_are_refused(monkeypatch):
    with pytest.raises(ValueError, match="quantization: must be one of 'fp8' or None, got 'int4'"):
        LLM(quantization="int4")
    monkeypatch.setattr("dlstep.models.quantization.supports_fp8", lambda device: False)
    for option in ("quantization", "kv_cache_dtype"):
        with pytest.raises(ValueError, match=rf"{option}='fp8' needs a CUDA device of compute capability 8[.]9.*, got cpu"):
            LLM("tiny-bd", **{option: "fp8"})


def test_unsupported_experts_are_refused(tmp_path, monkeypatch):
    write_checkpoint(tmp_path, "llada2")
    monkeypatch.setattr("dlstep.models.quantization.fits", lambda module: False)
    with pytest.raises(ValueError, match="quantization='fp8' is not supported for the experts of Glm4MoeForCausalLM"):
        LLM(str(tmp_path), family="llada2", quantization="fp8")


@torch.no_grad()
def states_of(ranks, folders):
    """Return the last hidden states of each network, and the number of FP8 parameters of this rank."""
    found = []
    for folder in folders:
        network = load_checkpoint(folder, family=folder.name, ranks=ranks).network
        quantize(network)
        network.set_attn_implementation("sdpa")
        held = sum(parameter.numel() for parameter in network.parameters() if parameter.dtype == FP8)
        # As an array: a tensor would be fetched from the memory of a rank that may have ended.
        found.append((network.base_model(torch.arange(3, 30)[None]).last_hidden_state[0].numpy(), held))
    return found


@pytest.mark.full
def test_ranks_share_a_quantized_network(tmp_path):
    """Each rank has half of the weights and quantizes its part of an input with a separate scale, so states differ slightly."""
    folders = [tmp_path / family for family in ("sdar", "dream", "llada2")]
    for folder in folders:
        # Every row uses all experts; otherwise, rounding could decide between two that are almost equally good.
        chosen = {"num_experts_per_tok": 8, "n_group": 1, "topk_group": 1, "num_experts": 8} if folder.name == "llada2" else {}
        write_checkpoint(folder, folder.name, **chosen)
    alone, others = states_of(Ranks(), folders), run_ranks(2, states_of, folders)
    for number, (whole, held) in enumerate(alone):
        assert sum(rank[number][1] for rank in others) == held
        assert np.array_equal(others[0][number][0], others[1][number][0])
        assert np.linalg.norm(others[0][number][0] - whole) / np.linalg.norm(whole) < 0.3, (
            "unrelated states would differ by more than 1"
        )
