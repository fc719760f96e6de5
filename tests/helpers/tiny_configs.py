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

Facts = dict[str, Any]
HEAD_DIM = 8


def remote(model_type: str, architecture: str, module: str) -> Facts:
    """Facts that a checkpoint with code of its own states about it."""
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


def dreamon(heads: tuple[int, int], biases: bool) -> Facts:
    return dream(heads, biases) | {"expand_token_id": MASK_ID + 3}


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
    training = {"mask_block_sizes": [4, 8], "sampling_eps": [0.001], "truncate_probability": 0, "prefix_probability": 0}
    own = {"head_dim": HEAD_DIM, "attention_bias": biases, "mask_token_id": MASK_ID, "attention_kernel": "flash_attention"}
    return shape(heads) | remote("CoDA", "CoDALanguageModel", "coda") | own | training


def rnd1(heads: tuple[int, int], biases: bool) -> Facts:
    own = {"num_diffusion_steps": 256, "moe_backend": "hf", "is_causal": False, "rope_scaling": False, "sliding_window": False}
    return sdar_moe(heads, biases) | remote("rnd1", "RND1LM", "rnd") | own


def illada(heads: tuple[int, int], biases: bool) -> Facts:
    own = {"attention_bias": biases, "mlp_bias": biases, "layer_norm_eps": None, "resid_pdrop": 0.0}
    return shape(heads) | remote("illada", "ILLaDAForCausalLM", "illada") | own


def llada_moe(heads: tuple[int, int], biases: bool) -> Facts:
    kept = {name: value for name, value in shape(heads).items() if name != "intermediate_size"}
    return (
        kept
        | remote("llada", "LLaDAMoEModelLM", "lladamoe")
        | {
            "attention_bias": biases,
            "clip_qkv": None,
            "dense_intermediate_size": 48,
            "expert_intermediate_size": 24,
            "moe_layer_freq": [1, 1],
            "moe_router_enable_expert_bias": False,
            "moe_router_score_function": "softmax",
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "partial_rotary_factor": 1,
            "qk_layernorm": True,
            "routed_scaling_factor": 1,
        }
    )


def efficient_dlm(heads: tuple[int, int], biases: bool) -> Facts:
    form = {"dlm_paradigm": "bidirectional", "dlm_type": "llada", "dlm_arch": "encoder", "disable_qk_norm": False}
    return sdar(heads, biases) | remote("qwen3", "EfficientDLM", "edlm") | form


def fast_dllm_v2(heads: tuple[int, int], biases: bool) -> Facts:
    del biases
    return shape(heads) | remote("Fast_dLLM_Qwen", "Fast_dLLM_QwenForCausalLM", "fast_dllm") | {"bd_size": 16}


def sdar(heads: tuple[int, int], biases: bool) -> Facts:
    own = {"mask_token_id": MASK_ID, "block_size": 4, "head_dim": 16, "attention_bias": biases, "hidden_size": 32}
    return shape(heads) | remote("sdar", "SDARForCausalLM", "sdar") | own


def idlm(heads: tuple[int, int], biases: bool) -> Facts:
    return sdar(heads, biases) | {"block_size": 2, "use_regular_causal": True}


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


def nemotron_labs_diffusion(heads: tuple[int, int], biases: bool) -> Facts:
    del biases  # it has none
    named = remote("nemotron_labs_diffusion", "NemotronLabsDiffusionModel", "nemotron_labs_diffusion")
    own = {name: value for name, value in shape(heads).items() if name not in ("rope_theta", "rope_scaling")}
    # Queries are scaled from position 8 on.
    rope = {
        "rope_type": "yarn",
        "rope_theta": 10000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 8,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "llama_4_scaling_beta": 0.1,
    }
    more = {"mask_token_id": MASK_ID, "block_size": 4, "head_dim": 16, "hidden_size": 32, "dlm_paradigm": "bidirectional"}
    return own | named | more | {"ar_loss_weight": 1.0, "sliding_window": None, "rope_parameters": rope}


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


def sdlm(heads: tuple[int, int], biases: bool) -> Facts:
    del biases
    own = {"block_size": 4, "causal_attn": False, "mask_token_id": MASK_ID}
    return shape(heads) | remote("qwen2", "SDLMQwen2ForCausalLM", "sdlm") | own


def wedlm(norms: bool) -> Callable[[tuple[int, int], bool], Facts]:
    """Facts of WeDLM's network with norms on queries and keys, or with biases on queries, keys and values."""

    def facts(heads: tuple[int, int], biases: bool) -> Facts:
        del biases
        own = {"attention_bias": not norms, "qk_norm": norms, "head_dim": HEAD_DIM, "mask_token_id": MASK_ID}
        return shape(heads) | remote("wedlm", "WeDLMForCausalLM", "wedlm") | own

    return facts


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
    experts = ("num_experts", "num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob", "decoder_sparse_step")
    return Qwen3MoeConfig(**taken(facts, "head_dim", "attention_bias", "mlp_only_layers", *experts)), Qwen3MoeForCausalLM


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
    "dream_reasoner": (dream_reasoner, as_qwen3),
    "stable_diffcoder": (stable_diffcoder, as_llama),
    "llada": (llada, as_llada),
    "fast_dllm_v2": (fast_dllm_v2, as_qwen2),
    "sdar": (sdar, as_qwen3),
    "idlm": (idlm, as_qwen3),
    "wedlm": (wedlm(norms=False), as_qwen2),
    "sdlm": (sdlm, as_qwen2),
    "wedlm_qwen3": (wedlm(norms=True), as_qwen3),
    "sdar_moe": (sdar_moe, as_qwen3_moe),
    "open_dcoder": (open_dcoder, as_qwen2),
    "coda": (coda, as_qwen3),
    "rnd1": (rnd1, as_qwen3_moe),
    "illada": (illada, as_llama),
    "llada_moe": (llada_moe, as_llada_moe),
    "efficient_dlm": (efficient_dlm, as_qwen3),
    "a2d_qwen3": (a2d("Qwen3"), as_qwen3),
    "a2d_qwen3_bd3lm": (a2d("Qwen3", "diffusion-bd3lm-v0.1"), as_qwen3),
    "a2d_qwen2": (a2d("Qwen2"), as_qwen2),
    "a2d_llama": (a2d("Llama"), as_llama),
    "opdlm": (a2d("Qwen3", "OPDLM-4B"), as_qwen3),
    "nemotron_labs_diffusion": (nemotron_labs_diffusion, as_ministral3),
    "diffusion_gemma": (diffusion_gemma, as_diffusion_gemma),
} | dict.fromkeys(("llada2", "llada2_moe", "llada2_mini", "llada2dot1_mini", "llada2_mini_dmax"), (llada2, as_glm4_moe))
FACTS = {name: facts for name, (facts, _) in FAMILIES.items()}
