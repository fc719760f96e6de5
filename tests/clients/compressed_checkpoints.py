"""Compress the checkpoint in `plain` with compressed-tensors, once for each scheme; run by its own Python.

A folder for each scheme gets the compressed checkpoint, and `decompressed.safetensors` with the
weights that the library restores from it.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
from compressed_tensors.compressors import ModelCompressor
from compressed_tensors.quantization import (
    QuantizationConfig,
    QuantizationStatus,
    apply_quantization_config,
    preset_name_to_scheme,
)
from compressed_tensors.quantization.utils import calculate_qparams
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import Qwen3Config, Qwen3ForCausalLM

FOREIGN = ("model_type", "architectures", "auto_map", "dlstep", "torch_dtype", "dtype")


def bounds(weight: Tensor, size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """The minimum and the maximum of each block of `size`, or of what there is of it at the edges."""
    rows = [weight[start : start + size[0]] for start in range(0, len(weight), size[0])]
    blocks = [[row[:, start : start + size[1]] for start in range(0, weight.shape[1], size[1])] for row in rows]
    least = torch.stack([torch.stack([block.min() for block in row]) for row in blocks])
    return least, torch.stack([torch.stack([block.max() for block in row]) for row in blocks])


def compress(plain: Path, folder: Path, scheme: str, dtype: torch.dtype) -> None:
    """Write one compressed checkpoint."""
    facts: dict[str, Any] = json.loads((plain / "config.json").read_text())
    network = Qwen3ForCausalLM(Qwen3Config(**{name: value for name, value in facts.items() if name not in FOREIGN}))
    network.load_state_dict(load_file(plain / "model.safetensors"), strict=False)
    network.to(dtype)
    group = preset_name_to_scheme(scheme, ["Linear"])
    if scheme == "FP8":
        group.input_activations = None  # its scales of inputs are fixed, which dlstep refuses
    apply_quantization_config(network, QuantizationConfig(config_groups={"group_0": group}, ignore=["lm_head"]))
    for module in network.modules():
        if (arguments := getattr(getattr(module, "quantization_scheme", None), "weights", None)) is None:
            continue
        whole = tuple(module.weight.shape)
        size = {"channel": (1, whole[1]), "tensor": whole, "block": arguments.block_structure}[str(arguments.strategy)]
        scales, _ = calculate_qparams(*bounds(module.weight.data.float(), size), arguments)
        module.weight_scale.data.copy_(scales.reshape(module.weight_scale.shape))
        module.quantization_status = QuantizationStatus.FROZEN
    compressor = ModelCompressor.from_pretrained_model(network)
    compressor.compress_model(network)
    shutil.copytree(plain, folder)
    for file in folder.glob("*.safetensors*"):
        file.unlink()
    network.save_pretrained(folder)
    compressor.update_config(folder)
    stated = json.loads((folder / "config.json").read_text())["quantization_config"]
    (folder / "config.json").write_text(json.dumps(facts | {"quantization_config": stated}))
    compressor.decompress_model(network)
    weights = {name: weight.detach().contiguous() for name, weight in network.named_parameters() if name.endswith("weight")}
    save_file(weights, folder / "decompressed.safetensors")


if __name__ == "__main__":
    _, out, *schemes = sys.argv
    for scheme in schemes:
        for dtype in (torch.float32, torch.bfloat16):
            compress(Path(out, "plain"), Path(out, f"{scheme} {dtype}"), scheme, dtype)
