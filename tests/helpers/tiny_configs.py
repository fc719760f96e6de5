"""The config.json of tiny checkpoints of every family, and the network that transformers makes of each, worked out by hand."""

import json
from collections.abc import Callable
from typing import Any

from transformers import (
    DiffusionGemmaConfig,
    DiffusionGemmaForBlockDiffusion,
    Glm4MoeConfig,
    Glm4MoeForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Ministral3Config,
    Ministral3ForCausalLM,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from training.tokenizer import EMBEDDING_ROWS, EOS_ID, MASK_ID, PAD_ID

from . import published

Facts = dict[str, Any]
HEAD_DIM = 8


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
        "bos_token_id": None,
        "torch_dtype": "float32",
    }


def dream(heads: tuple[int, int], biases: bool) -> Facts:
    del biases  # it has those of queries, keys and values in any case
    return published.DREAM_7B | shape(heads) | {"mask_token_id": MASK_ID}


def dreamon(heads: tuple[int, int], biases: bool) -> Facts:
    return dream(heads, biases) | {"expand_token_id": MASK_ID + 3}


def wide(heads: tuple[int, int], biases: bool) -> Facts:
    """Sizes with a `head_dim` and `hidden_size` that do not depend on `heads`."""
    return shape(heads) | {"mask_token_id": MASK_ID, "head_dim": 16, "attention_bias": biases, "hidden_size": 32}


def on_wide(facts: Facts, **own: int) -> Callable[[tuple[int, int], bool], Facts]:
    """Published facts with the sizes of `wide`."""
    return lambda heads, biases: facts | wide(heads, biases) | own


def stable_diffcoder(heads: tuple[int, int], biases: bool) -> Facts:
    own = {"attention_bias": biases, "mlp_bias": biases, "head_dim": HEAD_DIM}
    return published.STABLE_DIFFCODER_8B | shape(heads) | own


def llada(heads: tuple[int, int], biases: bool) -> Facts:
    return published.LLADA_8B | {
        "d_model": heads[0] * HEAD_DIM,
        "embedding_size": EMBEDDING_ROWS,
        "eos_token_id": EOS_ID,
        "include_qkv_bias": biases,
        "mask_token_id": MASK_ID,
        "max_sequence_length": 256,
        "mlp_hidden_size": 48,
        "n_heads": heads[0],
        "n_kv_heads": heads[1],
        "n_layers": 2,
        "pad_token_id": PAD_ID,
        "rope_theta": 10000.0,
        "vocab_size": EMBEDDING_ROWS,
    }


def a2d(kind: str, name: str = "diffusion-mdlm-v0.1") -> Callable[[tuple[int, int], bool], Facts]:
    """Facts of a class of transformers without its causal mask: the configuration is that of the class."""

    def facts(heads: tuple[int, int], biases: bool) -> Facts:
        names = {"model_type": f"a2d-{kind.lower()}", "architectures": [f"A2D{kind}LMHeadModel"], "_name_or_path": name}
        layers = {"layer_types": ["full_attention"] * 2, "max_window_layers": 2, "sliding_window": None}
        return (
            shape(heads)
            | names
            | layers
            | {"mask_token_id": MASK_ID}
            | ({} if kind == "Qwen2" else {"attention_bias": biases, "head_dim": HEAD_DIM})
        )

    return facts


def open_dcoder(heads: tuple[int, int], biases: bool) -> Facts:
    del biases  # it has those of queries, keys and values in any case
    return shape(heads) | {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "_name_or_path": "open-dcoder-0.5B"}


def coda(heads: tuple[int, int], biases: bool) -> Facts:
    return published.CODA | shape(heads) | {"head_dim": HEAD_DIM, "attention_bias": biases, "mask_token_id": MASK_ID}


def illada(heads: tuple[int, int], biases: bool) -> Facts:
    return published.ILLADA_8B | shape(heads) | {"attention_bias": biases, "mlp_bias": biases}


def llada_moe(heads: tuple[int, int], biases: bool) -> Facts:
    sizes = {"dense_intermediate_size": 48, "expert_intermediate_size": 24, "num_experts": 4, "num_experts_per_tok": 2}
    own = {"intermediate_size": None, "attention_bias": biases, "moe_layer_freq": [1, 1]}
    return published.LLADA_MOE_7B | shape(heads) | sizes | own


def fast_dllm_v2(heads: tuple[int, int], biases: bool) -> Facts:
    del biases
    return published.FAST_DLLM_V2_7B | shape(heads) | {"bd_size": 16}


def experts(facts: Facts, **own: bool) -> Callable[[tuple[int, int], bool], Facts]:
    """Published facts of a mixture of experts with small sizes; the first layer has no experts."""
    sizes = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
    layers = {"mlp_only_layers": [0], "num_hidden_layers": 3}
    return lambda heads, biases: facts | wide(heads, biases) | sizes | layers | own


def llada2(heads: tuple[int, int], biases: bool) -> Facts:
    sizes = {"head_dim": 16, "hidden_size": 32, "moe_intermediate_size": 24, "num_hidden_layers": 3, "rotary_dim": 8}
    counts = {"n_group": 2, "topk_group": 1, "num_experts": 8, "num_experts_per_tok": 2}
    return published.LLADA2_MINI | shape(heads) | sizes | counts | {"use_qkv_bias": biases}


def nemotron_labs_diffusion(heads: tuple[int, int], biases: bool) -> Facts:
    del biases  # it has none
    # Queries are scaled from position 8 on.
    rope = published.NEMOTRON_8B["rope_parameters"] | {
        "rope_theta": 10000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 8,
    }
    own = {"rope_parameters": rope, "rope_theta": None, "block_size": 4}
    return published.NEMOTRON_8B | wide(heads, False) | own


def diffusion_gemma(heads: tuple[int, int], biases: bool) -> Facts:
    assert not biases, "it never has any"
    known = {name: value for name, value in published.DIFFUSION_GEMMA_26B.items() if name != "eos_token_id"}
    text = {name: value for name, value in known["text_config"].items() if name != "tie_word_embeddings"} | {
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
        "pad_token_id": PAD_ID,
        "eos_token_id": EOS_ID,
        "bos_token_id": None,
    }
    vision = known["vision_config"] | {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "position_embedding_size": 16,
    }
    return known | {
        "canvas_length": 8,
        "boi_token_id": EMBEDDING_ROWS - 3,
        "eoi_token_id": EMBEDDING_ROWS - 2,
        "image_token_id": EMBEDDING_ROWS - 1,
        "text_config": text,
        "vision_config": vision,
    }


def sdlm(heads: tuple[int, int], biases: bool) -> Facts:
    del biases
    return (
        published.SDLM_3B
        | shape(heads)
        | {"block_size": 4, "causal_attn": False, "text_mask_token_id": None, "mask_token_id": MASK_ID}
    )


def wedlm(facts: Facts) -> Callable[[tuple[int, int], bool], Facts]:
    """Published facts with the sizes of `shape`."""
    return lambda heads, _: facts | shape(heads) | {"head_dim": HEAD_DIM, "mask_token_id": MASK_ID}


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
    biases = {"mlp_bias": facts.get("mlp_bias", False)}
    return LlamaConfig(**taken(facts, "attention_bias"), **biases, bos_token_id=None), LlamaForCausalLM


def as_qwen3(facts: Facts) -> Reference:
    return Qwen3Config(**taken(facts, "head_dim", "attention_bias")), Qwen3ForCausalLM


def as_qwen3_moe(facts: Facts) -> Reference:
    routed = ("num_experts", "num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob", "decoder_sparse_step")
    return Qwen3MoeConfig(**taken(facts, "head_dim", "attention_bias", "mlp_only_layers", *routed)), Qwen3MoeForCausalLM


def as_llada_moe(facts: Facts) -> Reference:
    width = facts["expert_intermediate_size"]
    sizes = {"intermediate_size": width, "moe_intermediate_size": width, "head_dim": HEAD_DIM, "norm_topk_prob": False}
    return as_qwen3_moe(facts | sizes | {"decoder_sparse_step": 1, "mlp_only_layers": []})


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
    if facts["include_qkv_bias"]:  # but none after the attention, as in Qwen2
        return as_qwen2(sizes)
    return LlamaConfig(**taken(sizes), bos_token_id=None), LlamaForCausalLM


def as_glm4_moe(facts: Facts) -> Reference:
    same = ("head_dim", "first_k_dense_replace", "moe_intermediate_size", "n_group", "topk_group", "num_experts_per_tok")
    given = taken(facts, *same, "norm_topk_prob", "routed_scaling_factor", "use_qk_norm")
    given["rope_parameters"]["partial_rotary_factor"] = facts["partial_rotary_factor"]
    counts = {"n_routed_experts": facts["num_experts"], "n_shared_experts": facts["num_shared_experts"]}
    return Glm4MoeConfig(**given, **counts, attention_bias=facts["use_qkv_bias"]), Glm4MoeForCausalLM


def as_ministral3(facts: Facts) -> Reference:
    given = {name: facts[name] for name in (*SHARED, *MORE, "head_dim")}
    return Ministral3Config(**given, rope_parameters=dict(facts["rope_parameters"]), eos_token_id=None), Ministral3ForCausalLM


def as_diffusion_gemma(facts: Facts) -> Reference:
    copied = json.loads(json.dumps(facts))
    return DiffusionGemmaConfig(**copied), DiffusionGemmaForBlockDiffusion


FAMILIES: dict[str, tuple[Callable[[tuple[int, int], bool], Facts], Callable[[Facts], Reference]]] = {
    "dream": (dream, as_qwen2),
    "diffucoder": (dream, as_qwen2),
    "dreamon": (dreamon, as_qwen2),
    "dream_reasoner": (on_wide(published.DREAM_REASONER_8B), as_qwen3),
    "stable_diffcoder": (stable_diffcoder, as_llama),
    "llada": (llada, as_llada),
    "fast_dllm_v2": (fast_dllm_v2, as_qwen2),
    "sdar": (on_wide(published.SDAR_8B), as_qwen3),
    "idlm": (on_wide(published.IDLM_8B, block_size=2), as_qwen3),
    "wedlm": (wedlm(published.WEDLM_7B), as_qwen2),
    "sdlm": (sdlm, as_qwen2),
    "wedlm_qwen3": (wedlm(published.WEDLM_8B), as_qwen3),
    "sdar_moe": (experts(published.SDAR_30B), as_qwen3_moe),
    "open_dcoder": (open_dcoder, as_qwen2),
    "coda": (coda, as_qwen3),
    "rnd1": (experts(published.RND1_30B, rope_scaling=False), as_qwen3_moe),
    "illada": (illada, as_llama),
    "llada_moe": (llada_moe, as_llada_moe),
    "efficient_dlm": (on_wide(published.EFFICIENT_DLM_4B, block_size=4), as_qwen3),
    "a2d_qwen3": (a2d("Qwen3"), as_qwen3),
    "a2d_qwen3_bd3lm": (a2d("Qwen3", "diffusion-bd3lm-v0.1"), as_qwen3),
    "a2d_qwen2": (a2d("Qwen2"), as_qwen2),
    "a2d_llama": (a2d("Llama"), as_llama),
    "opdlm": (a2d("Qwen3", "OPDLM-4B"), as_qwen3),
    "nemotron_labs_diffusion": (nemotron_labs_diffusion, as_ministral3),
    "diffusion_gemma": (diffusion_gemma, as_diffusion_gemma),
} | dict.fromkeys(("llada2", "llada2_moe", "llada2_mini", "llada2dot1_mini", "llada2_mini_dmax"), (llada2, as_glm4_moe))
FACTS = {name: facts for name, (facts, _) in FAMILIES.items()}
