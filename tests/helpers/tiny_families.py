"""Tiny random checkpoint folders of every family, under the names its authors publish.

The networks are built and named by hand here, not by the table of the package: both must come to the same.
"""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedModel

from training.model import save_tokenizer

from .tiny_configs import FACTS as FACTS, FAMILIES, Facts

Named = Iterator[tuple[str, Tensor]]


def write_checkpoint(
    folder: Path,
    family: str,
    *,
    seed: int = 0,
    shards: int = 1,
    tied: bool = False,
    biases: bool = False,
    heads: tuple[int, int] = (4, 2),
    **facts: Any,
) -> tuple[PreTrainedModel, Facts]:
    """A checkpoint folder of `family` with random weights: the network that they were taken from, and its config.json.

    `heads` are those of queries, and of keys and values. `facts` are put into config.json; None takes one out. `biases`
    are for families that may have some beyond their own, and `tied` for those that may tie their head.
    """
    facts_of, reference_of = FAMILIES[family]
    stated = facts_of(heads, biases) | {"tie_word_embeddings": tied}
    if family == "llada":
        stated["weight_tying"] = stated.pop("tie_word_embeddings")
    if family == "diffusion_gemma":
        stated.pop("tie_word_embeddings")
    stated = {name: value for name, value in (stated | facts).items() if value is not None}
    config, network_class = reference_of(stated)
    network = network_class._from_config(config, attn_implementation="sdpa", dtype=torch.float32).eval()
    fill(network, seed)
    tensors = dict(PUBLISHED.get(family, same_names)(untied(network)))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(stated, indent=2))
    save_shards(folder, tensors, shards)
    save_tokenizer(folder)
    return network, stated


@torch.no_grad()
def fill(network: PreTrainedModel, seed: int) -> None:
    """Overwrite every parameter, and every buffer that a checkpoint holds, with noise of a size that makes it count."""
    generator = torch.Generator().manual_seed(seed)
    kept = set(network.state_dict())
    for name, tensor in [*network.named_parameters(), *network.named_buffers()]:
        if name not in kept:
            continue
        noise = torch.randn(tensor.shape, generator=generator)
        if tensor.ndim >= 2:
            tensor.copy_(noise * 1.5 / tensor.shape[-1] ** 0.5)
        elif name.endswith(("bias",)):
            tensor.copy_(noise * 0.3)
        else:
            tensor.copy_(1.0 + noise * 0.3)


def untied(network: PreTrainedModel) -> dict[str, Tensor]:
    """The tensors of a network, each once: what is tied stands under the embedding's or the decoder's name."""
    found: dict[int, str] = {}
    state = network.state_dict()
    for name in sorted(state, key=lambda name: ("decoder" not in name, "embed_tokens" not in name)):
        found.setdefault(state[name].data_ptr(), name)
    return {name: state[name].clone() for name in state if name in set(found.values())}


def save_shards(folder: Path, tensors: dict[str, Tensor], shards: int) -> None:
    """Safetensors, in `shards` files with an index if there are several."""
    if shards == 1:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return
    names = list(tensors)
    places = {name: f"model-{number % shards + 1:05}-of-{shards:05}.safetensors" for number, name in enumerate(names)}
    for file in sorted(set(places.values())):
        save_file({name: tensors[name] for name in names if places[name] == file}, folder / file, metadata={"format": "pt"})
    total = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def same_names(tensors: dict[str, Tensor]) -> Named:
    yield from tensors.items()


def single_experts(tensors: dict[str, Tensor]) -> Named:
    """Experts one by one, gate and up apart."""
    for name, tensor in tensors.items():
        stem, stacked, part = name.partition("experts.")
        if not stacked or "shared_" in stem[-8:] or part not in ("gate_up_proj", "down_proj"):
            yield name, tensor
            continue
        for number, expert in enumerate(tensor):
            if part == "down_proj":
                yield f"{stem}experts.{number}.down_proj.weight", expert.clone()
            else:
                gate, up = expert.chunk(2)
                yield f"{stem}experts.{number}.gate_proj.weight", gate.clone()
                yield f"{stem}experts.{number}.up_proj.weight", up.clone()


LLADA_NAMES = {
    "self_attn.q_proj": "q_proj",
    "self_attn.k_proj": "k_proj",
    "self_attn.v_proj": "v_proj",
    "self_attn.o_proj": "attn_out",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ff_norm",
    "mlp.gate_proj": "ff_proj",
    "mlp.up_proj": "up_proj",
    "mlp.down_proj": "ff_out",
}
LLADA_TOPS = {"model.embed_tokens": "wte", "model.norm": "ln_f", "lm_head": "ff_out"}


def llada_names(tensors: dict[str, Tensor]) -> Named:
    """One flat list of parts for each block."""
    for name, tensor in tensors.items():
        stem, _, kind = name.rpartition(".")
        if found := re.fullmatch(r"model\.layers\.(\d+)\.(.+)", stem):
            yield f"model.transformer.blocks.{found[1]}.{LLADA_NAMES[found[2]]}.{kind}", tensor
        else:
            yield f"model.transformer.{LLADA_TOPS[stem]}.{kind}", tensor


LLADA2_NAMES = {
    "self_attn.o_proj": "attention.dense",
    "self_attn.q_norm": "attention.query_layernorm",
    "self_attn.k_norm": "attention.key_layernorm",
    "mlp.gate.e_score_correction_bias": "mlp.gate.expert_bias",
}


def llada2_names(tensors: dict[str, Tensor]) -> Named:
    """Queries, keys and values in one tensor, one after the other; experts one by one."""
    for name, tensor in single_experts(tensors):
        if ".self_attn.k_proj." in name or ".self_attn.v_proj." in name:
            continue
        if ".self_attn.q_proj." in name:
            parts = [tensors[name.replace("q_proj", part)] for part in ("q_proj", "k_proj", "v_proj")]
            yield name.replace("self_attn.q_proj", "attention.query_key_value"), torch.cat(parts)
            continue
        own = name.replace("embed_tokens", "word_embeddings")
        for ours, theirs in LLADA2_NAMES.items():
            own = own.replace(ours, theirs)
        yield own, tensor


def nemotron_names(tensors: dict[str, Tensor]) -> Named:
    """The body is an encoder, and one head serves both modes."""
    for name, tensor in tensors.items():
        yield name.replace("model.", "encoder.", 1).replace("lm_head.", "diffusion_head."), tensor


PUBLISHED: dict[str, Callable[[dict[str, Tensor]], Named]] = {
    "llada": llada_names,
    "sdar_moe": single_experts,
    "rnd1": single_experts,
    "llada_moe": single_experts,
    "efficient_dlm": nemotron_names,
    "nemotron_labs_diffusion": nemotron_names,
} | dict.fromkeys(("llada2", "llada2_moe", "llada2_mini", "llada2dot1_mini", "llada2_mini_dmax"), llada2_names)
