"""8-bit checkpoints: loading dequantizes their weights, and errors name what is not supported."""

from copy import deepcopy
from functools import partial

import pytest
import torch
from safetensors.torch import load_file, save_file

from dlstep import LLM
from dlstep.distributed.ranks import Ranks
from dlstep.models import load_checkpoint
from dlstep.models.check import check
from dlstep.models.configs import check_stored_quantization
from dlstep.models.quantization import QuantizedLinear

from ...helpers.files import edit, edit_tensors
from ...helpers.tiny_families import write_checkpoint

CONFIG = {
    "quant_method": "compressed-tensors",
    "format": "float-quantized",
    "quantization_status": "compressed",
    "global_compression_ratio": None,
    "kv_cache_scheme": None,
    "ignore": ["lm_head", "re:.*mlp.gate$"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "output_activations": None,
            "input_activations": {
                "num_bits": 8, "type": "float", "strategy": "token", "dynamic": True, "symmetric": True, "group_size": None,
            },
            "weights": {
                "num_bits": 8, "type": "float", "strategy": "channel", "dynamic": False, "symmetric": True, "group_size": None,
                "block_structure": None, "actorder": None, "observer": "minmax", "observer_kwargs": {},
            },
        }
    },
}  # fmt: skip
KINDS = [("float", "channel"), ("float", "tensor"), ("float", "block"), ("int", "channel")]


def stated(kind, strategy):
    """Return the quantization_config of weights of this type and strategy."""
    blocks = strategy == "block"
    config = group(type=kind, strategy=strategy, block_structure=[128, 128] if blocks else None)
    own = {"type": kind} | ({"strategy": "group", "group_size": 128} if blocks else {})
    config["config_groups"]["group_0"]["input_activations"] |= own
    return config


def encoded(weight, kind, strategy):
    """Return the codes of a weight, their scales as stored in files, and the dequantized weight, block by block."""
    most = 448.0 if kind == "float" else 127.0
    numbers, (rows, columns) = weight.double(), weight.shape
    size = {"channel": (1, columns), "tensor": (rows, columns), "block": (128, 128)}[strategy]
    blocks = (-(-rows // size[0]), -(-columns // size[1]))
    scales = torch.zeros(blocks, dtype=torch.float64)
    back, codes = torch.zeros_like(numbers), torch.zeros_like(numbers)
    for i in range(blocks[0]):
        for j in range(blocks[1]):
            part = (slice(i * size[0], (i + 1) * size[0]), slice(j * size[1], (j + 1) * size[1]))
            scales[i, j] = (numbers[part].abs().max() / most).to(torch.bfloat16).clamp(min=1e-6)
            scaled = (numbers[part] / scales[i, j]).clamp(-most, most)
            codes[part] = scaled.to(torch.float8_e4m3fn).double() if kind == "float" else scaled.round()
            back[part] = codes[part] * scales[i, j]
    stored = codes.to(torch.float8_e4m3fn if kind == "float" else torch.int8)
    return stored, (scales.flatten() if strategy == "tensor" else scales).to(torch.bfloat16), back


def quantized_folder(folder, family, kind, strategy):
    """Write two checkpoints: one with quantized layers, and one with the same weights dequantized."""
    coded, plain = folder / "coded", folder / "plain"
    for path in (coded, plain):
        write_checkpoint(path, family, intermediate_size=144)
    tensors = load_file(coded / "model.safetensors")
    numbers = dict(tensors)
    for name, weight in list(tensors.items()):
        if weight.ndim == 2 and ".layers." in name and ".gate." not in name:
            tensors[name], tensors[f"{name}_scale"], back = encoded(weight, kind, strategy)
            numbers[name] = back.float()
            assert torch.equal(numbers[name].double(), back), "codes times scales are exact in float32"
    save_file(tensors, coded / "model.safetensors")
    save_file(numbers, plain / "model.safetensors")
    edit(coded / "config.json", quantization_config=stated(kind, strategy))
    return coded, plain


@pytest.mark.parametrize("kind, strategy", KINDS)
@pytest.mark.parametrize("family", ["sdar", pytest.param("llada2", marks=pytest.mark.full)])
def test_load_checkpoint_dequantizes_stored_weights(family, kind, strategy, tmp_path):
    """Covers whole tensors, tensors that are split among parameters, single experts, and a rank's share of each."""
    coded, plain = quantized_folder(tmp_path, family, kind, strategy)
    assert check(coded, family).problems == check(plain, family).problems == ()
    for ranks in (Ranks(), Ranks(1, 2, "")):
        found, expected = (load_checkpoint(each, family=family, ranks=ranks).network for each in (coded, plain))
        others = dict(expected.named_parameters())
        for name, parameter in found.named_parameters():
            assert torch.equal(parameter, others[name]), name


@torch.no_grad()
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_fp8_reproduces_stored_codes_with_channel_scales(dtype, tmp_path):
    coded, _ = quantized_folder(tmp_path, "sdar", "float", "channel")
    llm = LLM(str(coded), family="sdar", dtype=dtype, quantization="fp8")
    network = llm.engine.driver.network.model
    stored = load_file(coded / "model.safetensors")
    layers = [(name, module) for name, module in network.named_modules() if isinstance(module, QuantizedLinear)]
    assert len(layers) == 14
    for name, module in layers:
        codes, scales = stored[f"{name}.weight"], stored[f"{name}.weight_scale"].flatten().float()
        # Loading rounds the largest number of a row to the dtype of the network, and therefore also its scale.
        assert torch.allclose(module.scales, scales * codes.float().abs().amax(1) / 448, rtol=2**-8)
        if (codes.float().abs().amax(1) == 448).all():
            assert torch.equal(module.weight.view(torch.uint8), codes.view(torch.uint8)), name


def group(part="weights", **changes):
    """Return the configuration with these fields of the weights, or of the input activations."""
    config = deepcopy(CONFIG)
    config["config_groups"]["group_0"][part] |= changes
    return config


inputs = partial(group, "input_activations")


@pytest.mark.parametrize(
    "stated, message",
    [
        ({"quant_method": "gptq", "bits": 4}, "quantization_config={'quant_method': 'gptq', 'bits': 4} is not supported"),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "only compressed-tensors with 8-bit weights is"),
        ("fp8", "quantization_config must be an object, got 'fp8'"),
        (CONFIG | {"kv_cache_scheme": {"num_bits": 8}}, "kv_cache_scheme={'num_bits': 8} is not supported"),
        (CONFIG | {"quantization_status": "frozen"}, "quantization_status='frozen' is not supported"),
        (group(num_bits=4), "group_0.weights.num_bits=4 is not supported, only 8 is"),
        (group(symmetric=False), "weights.symmetric=False is not supported"),
        (group(strategy="group", group_size=32), "weights.strategy='group' is not supported"),
        (group(strategy="block", block_structure=[64, 64]), r"weights.block_structure=\[64, 64\] is not supported"),
        (group(actorder="group"), "weights.actorder='group' is not supported"),
        (inputs(dynamic=False, strategy="tensor"), "input_activations.dynamic=False is not supported, only True is"),
        (inputs(num_bits=4), "input_activations.num_bits=4 is not supported"),
    ],
)
def test_errors_name_unsupported_fields(stated, message):
    with pytest.raises(ValueError, match=message):
        check_stored_quantization({"quantization_config": stated})


def test_checkpoints_may_quantize_only_weights():
    config = deepcopy(CONFIG)
    config["config_groups"]["group_0"]["input_activations"] = None
    check_stored_quantization({"quantization_config": config})
    check_stored_quantization({})


def test_check_reports_missing_and_misshapen_scales(tmp_path):
    coded, _ = quantized_folder(tmp_path, "sdar", "float", "channel")
    first, second = "model.layers.0.self_attn.q_proj.weight", "model.layers.1.mlp.up_proj.weight"
    third = "model.layers.1.mlp.down_proj.weight"

    def damage(tensors):
        del tensors[f"{first}_scale"]
        tensors[f"{second}_scale"] = tensors[f"{second}_scale"][:5].clone()
        tensors["model.norm.weight_scale"] = torch.ones(1)
        tensors[f"{third}_scale"] = tensors[f"{third}_scale"].to(torch.float8_e5m2)

    edit_tensors(coded / "model.safetensors", damage)
    problems = check(coded, "sdar").problems
    assert f"other dtype: {first} is F8_E4M3, not one of F32, F16, BF16, and {first}_scale is missing" in problems
    assert f"other shape: {second}_scale has [5, 1], expected [] or [1] or [1, 1] or [144] or [144, 1] or [2, 1]" in problems
    assert "not used: model.norm.weight_scale" in problems
    assert f"other dtype: {third}_scale is F8_E5M2, not one of F32, F16, BF16" in problems
    with pytest.raises(ValueError, match=f"{first}_scale is missing"):
        load_checkpoint(coded, family="sdar")
