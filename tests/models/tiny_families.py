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
from transformers import (
    DiffusionGemmaConfig,
    DiffusionGemmaForBlockDiffusion,
    Glm4MoeConfig,
    Glm4MoeForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from dlstep.tiny.model import save_tokenizer
from dlstep.tiny.tokenizer import EMBEDDING_ROWS, EOS_ID, MASK_ID, PAD_ID

Facts = dict[str, Any]
Named = Iterator[tuple[str, Tensor]]
HEAD_DIM = 8


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
    stated = FACTS[family](heads, biases) | {"tie_word_embeddings": tied}
    if family == "llada":
        stated["weight_tying"] = stated.pop("tie_word_embeddings")
    if family == "diffusion_gemma":
        stated.pop("tie_word_embeddings")
    stated = {name: value for name, value in (stated | facts).items() if value is not None}
    config, network_class = REFERENCES[family](stated)
    network = network_class._from_config(config, attn_implementation="sdpa", dtype=torch.float32).eval()
    fill(network, seed)
    tensors = dict(PUBLISHED[family](untied(network)))
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


def remote(model_type: str, architecture: str, module: str) -> Facts:
    """What a checkpoint with code of its own says about it."""
    config = f"configuration_{module}.{architecture.removesuffix('ForCausalLM')}Config"
    auto_map = {"AutoConfig": config, "AutoModelForCausalLM": f"modeling_{module}.{architecture}"}
    return {"model_type": model_type, "architectures": [architecture], "auto_map": auto_map}


def shape(heads: tuple[int, int]) -> Facts:
    """Sizes under the names that most families use."""
    return {
        "vocab_size": EMBEDDING_ROWS,
        "hidden_size": heads[0] * HEAD_DIM,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": heads[0],
        "num_key_value_heads": heads[1],
        "hidden_act": "silu",
        "max_position_embeddings": 256,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "rope_scaling": None,
        "use_sliding_window": False,
        "pad_token_id": PAD_ID,
        "eos_token_id": EOS_ID,
        "torch_dtype": "float32",
    }


def dream(heads: tuple[int, int], biases: bool) -> Facts:
    del biases  # it has those of queries, keys and values in any case
    return shape(heads) | remote("Dream", "DreamModel", "dream") | {"mask_token_id": MASK_ID, "max_window_layers": 28}


def dream_reasoner(heads: tuple[int, int], biases: bool) -> Facts:
    own = {"mask_token_id": MASK_ID, "head_dim": 16, "attention_bias": biases, "hidden_size": 32}
    return shape(heads) | remote("Dream", "DreamModel", "dream") | own


def stable_diffcoder(heads: tuple[int, int], biases: bool) -> Facts:
    named = remote("llama", "StableDiffcoderForCausalLM", "stable_diffcoder")
    return shape(heads) | named | {"attention_bias": biases, "mlp_bias": biases, "head_dim": HEAD_DIM}


def llada(heads: tuple[int, int], biases: bool) -> Facts:
    return remote("llada", "LLaDAModelLM", "llada") | {
        "activation_type": "silu",
        "alibi": False,
        "attention_layer_norm": False,
        "block_type": "llama",
        "d_model": heads[0] * HEAD_DIM,
        "embedding_size": EMBEDDING_ROWS,
        "eos_token_id": EOS_ID,
        "include_bias": False,
        "include_qkv_bias": biases,
        "input_emb_norm": False,
        "layer_norm_type": "rms",
        "mask_token_id": MASK_ID,
        "max_sequence_length": 256,
        "mlp_hidden_size": 48,
        "n_heads": heads[0],
        "n_kv_heads": heads[1],
        "n_layers": 2,
        "pad_token_id": PAD_ID,
        "rms_norm_eps": 1e-5,
        "rope": True,
        "rope_theta": 10000.0,
        "scale_logits": False,
        "vocab_size": EMBEDDING_ROWS,
    }


def fast_dllm_v2(heads: tuple[int, int], biases: bool) -> Facts:
    del biases
    return shape(heads) | remote("Fast_dLLM_Qwen", "Fast_dLLM_QwenForCausalLM", "fast_dllm") | {"bd_size": 16}


def sdar(heads: tuple[int, int], biases: bool) -> Facts:
    own = {"mask_token_id": MASK_ID, "block_size": 4, "head_dim": 16, "attention_bias": biases, "hidden_size": 32}
    return shape(heads) | remote("sdar", "SDARForCausalLM", "sdar") | own


def sdar_moe(heads: tuple[int, int], biases: bool) -> Facts:
    own = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "norm_topk_prob": True}
    layers = {"decoder_sparse_step": 1, "mlp_only_layers": [0], "num_hidden_layers": 3}
    return sdar(heads, biases) | remote("sdar_moe", "SDARMoeForCausalLM", "sdar_moe") | own | layers


def llada2(heads: tuple[int, int], biases: bool) -> Facts:
    return (
        shape(heads)
        | remote("llada2_moe", "LLaDA2MoeModelLM", "llada2_moe")
        | {
            "head_dim": 16,
            "hidden_size": 32,
            "first_k_dense_replace": 1,
            "moe_intermediate_size": 24,
            "n_group": 2,
            "topk_group": 1,
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "num_shared_experts": 1,
            "norm_topk_prob": True,
            "partial_rotary_factor": 0.5,
            "routed_scaling_factor": 2.5,
            "score_function": "sigmoid",
            "moe_router_enable_expert_bias": True,
            "use_bias": False,
            "use_qkv_bias": biases,
            "use_qk_norm": True,
            "norm_head": False,
            "num_hidden_layers": 3,
        }
    )


def diffusion_gemma(heads: tuple[int, int], biases: bool) -> Facts:
    assert not biases, "it never has any"
    text = {
        "model_type": "diffusion_gemma_text",
        "vocab_size": EMBEDDING_ROWS,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 4,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "num_attention_heads": heads[0],
        "num_key_value_heads": heads[1],
        "head_dim": 8,
        "global_head_dim": 16,
        "num_global_key_value_heads": 1,
        "sliding_window": 6,
        "max_position_embeddings": 512,
        "num_experts": 4,
        "top_k_experts": 2,
        "moe_intermediate_size": 16,
        "rms_norm_eps": 1e-6,
        "pad_token_id": PAD_ID,
        "eos_token_id": EOS_ID,
        "bos_token_id": None,
        "rope_parameters": {
            "full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1000000.0, "rope_type": "proportional"},
            "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"},
        },
    }
    vision = {
        "model_type": "gemma4_vision",
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "position_embedding_size": 16,
    }
    return {
        "model_type": "diffusion_gemma",
        "architectures": ["DiffusionGemmaForBlockDiffusion"],
        "canvas_length": 8,
        "boi_token_id": EMBEDDING_ROWS - 3,
        "eoi_token_id": EMBEDDING_ROWS - 2,
        "image_token_id": EMBEDDING_ROWS - 1,
        "text_config": text,
        "vision_config": vision,
    }


FACTS: dict[str, Callable[[tuple[int, int], bool], Facts]] = {
    "dream": dream,
    "diffucoder": dream,
    "dream_reasoner": dream_reasoner,
    "stable_diffcoder": stable_diffcoder,
    "llada": llada,
    "fast_dllm_v2": fast_dllm_v2,
    "sdar": sdar,
    "sdar_moe": sdar_moe,
    "llada2": llada2,
    "llada2_moe": llada2,
    "llada2_mini": llada2,
    "llada2dot1_mini": llada2,
    "llada2_mini_dmax": llada2,
    "diffusion_gemma": diffusion_gemma,
}


SHARED = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
MORE = ("num_key_value_heads", "max_position_embeddings", "rms_norm_eps", "tie_word_embeddings")


def taken(facts: Facts, *more: str) -> Facts:
    """Arguments of a configuration class that have the name of the fact."""
    rope = {"rope_type": "default", "rope_theta": facts["rope_theta"]}
    return {name: facts[name] for name in (*SHARED, *MORE, *more)} | {"rope_parameters": rope, "eos_token_id": None}


Reference = tuple[PretrainedConfig, type[PreTrainedModel]]


def as_qwen2(facts: Facts) -> Reference:
    return Qwen2Config(**taken(facts)), Qwen2ForCausalLM


def as_llama(facts: Facts) -> Reference:
    return LlamaConfig(**taken(facts, "attention_bias", "mlp_bias", "head_dim"), bos_token_id=None), LlamaForCausalLM


def as_qwen3(facts: Facts) -> Reference:
    return Qwen3Config(**taken(facts, "head_dim", "attention_bias")), Qwen3ForCausalLM


def as_qwen3_moe(facts: Facts) -> Reference:
    experts = ("num_experts", "num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob", "decoder_sparse_step")
    return Qwen3MoeConfig(**taken(facts, "head_dim", "attention_bias", "mlp_only_layers", *experts)), Qwen3MoeForCausalLM


def as_llada(facts: Facts) -> Reference:
    sizes = {
        "vocab_size": facts["embedding_size"],
        "hidden_size": facts["d_model"],
        "intermediate_size": facts["mlp_hidden_size"],
        "num_hidden_layers": facts["n_layers"],
        "num_attention_heads": facts["n_heads"],
        "num_key_value_heads": facts["n_kv_heads"],
        "max_position_embeddings": facts["max_sequence_length"],
        "rms_norm_eps": facts["rms_norm_eps"],
        "rope_theta": facts["rope_theta"],
        "tie_word_embeddings": facts["weight_tying"],
    }
    if facts["include_qkv_bias"]:  # but none behind the attention, as in Qwen2
        return as_qwen2(sizes)
    return LlamaConfig(**taken(sizes), bos_token_id=None), LlamaForCausalLM


def as_glm4_moe(facts: Facts) -> Reference:
    same = ("head_dim", "first_k_dense_replace", "moe_intermediate_size", "n_group", "topk_group", "num_experts_per_tok")
    given = taken(facts, *same, "norm_topk_prob", "routed_scaling_factor", "use_qk_norm")
    given["rope_parameters"]["partial_rotary_factor"] = facts["partial_rotary_factor"]
    counts = {"n_routed_experts": facts["num_experts"], "n_shared_experts": facts["num_shared_experts"]}
    return Glm4MoeConfig(**given, **counts, attention_bias=facts["use_qkv_bias"]), Glm4MoeForCausalLM


def as_diffusion_gemma(facts: Facts) -> Reference:
    copied = json.loads(json.dumps(facts))
    return DiffusionGemmaConfig(**copied), DiffusionGemmaForBlockDiffusion


REFERENCES: dict[str, Callable[[Facts], Reference]] = {
    "dream": as_qwen2,
    "diffucoder": as_qwen2,
    "dream_reasoner": as_qwen3,
    "stable_diffcoder": as_llama,
    "llada": as_llada,
    "fast_dllm_v2": as_qwen2,
    "sdar": as_qwen3,
    "sdar_moe": as_qwen3_moe,
    "diffusion_gemma": as_diffusion_gemma,
} | dict.fromkeys(("llada2", "llada2_moe", "llada2_mini", "llada2dot1_mini", "llada2_mini_dmax"), as_glm4_moe)


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
    """Queries, keys and values in one tensor, one behind the other; experts one by one."""
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


PUBLISHED: dict[str, Callable[[dict[str, Tensor]], Named]] = {
    "dream": same_names,
    "diffucoder": same_names,
    "dream_reasoner": same_names,
    "stable_diffcoder": same_names,
    "llada": llada_names,
    "fast_dllm_v2": same_names,
    "sdar": same_names,
    "sdar_moe": single_experts,
    "diffusion_gemma": same_names,
} | dict.fromkeys(("llada2", "llada2_moe", "llada2_mini", "llada2dot1_mini", "llada2_mini_dmax"), llada2_names)
