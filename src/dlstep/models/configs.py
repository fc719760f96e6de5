"""Convert each family's config.json to arguments of its transformers configuration class.

The functions are pure. Features that the class does not support are rejected by name and value. A size or rotary base
that is not stated is an error, never a default. Fields that no code reads are reported unless known to be harmless.
"""

from collections import UserDict
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from transformers import PretrainedConfig

from .quantization import BLOCK

Facts = Mapping[str, Any]
Arguments = dict[str, Any]

SIZES = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "max_position_embeddings",
    "rms_norm_eps",
)
ENDS = ("bos_token_id", "eos_token_id", "pad_token_id")
# For these, angles depend only on the position; for other types also on the length of the sequence.
ROPE_TYPES = ("default", "linear", "yarn", "llama3")
FULL = {"layer_types": ("full_attention",)}
PLAIN = {"hidden_act": ("silu",), "use_sliding_window": (False,), "partial_rotary_factor": (1.0,)}


def require(facts: Facts, name: str) -> Any:
    """Return a required fact. Raises ValueError if it is missing."""
    value = facts.get(name)
    if value is None:
        raise ValueError(f"it does not state {name}")
    return value


def stated_or(facts: Facts, name: str, default: Any) -> Any:
    """Return a fact, or the default if it is missing or null."""
    value = facts.get(name)
    return default if value is None else value


def accept(facts: Facts, harmless: Mapping[str, tuple[Any, ...]], where: str = "") -> None:
    """Raise ValueError for facts with other values than these; missing and null are accepted.

    In the message, `where` precedes the name of the fact.
    """
    for name, values in harmless.items():
        value = facts.get(name)
        if value is not None and value not in values:
            allowed = " or ".join(repr(each) for each in values)
            raise ValueError(f"{where}{name}={value!r} is not supported" + (f", only {allowed} is" if values else ""))


def part(facts: Facts, name: str) -> Facts:
    """Return the object `name` of the facts; empty if it is missing. Raises ValueError if it is not an object."""
    inner: Any = facts.get(name) or {}
    if not isinstance(inner, dict):
        raise ValueError(f"{name} must be an object, got {inner!r}")
    return inner


def off(*names: str) -> dict[str, tuple[Any, ...]]:
    """Return that facts of these names must be false, for `accept`."""
    return dict.fromkeys(names, (False,))


QUANTIZATION = "quantization_config"
# Supported fields of a group's weights and input activations. Whether inputs are quantized depends on dlstep's option
# `quantization`, so what a checkpoint states about inputs can be ignored if their scales are computed at run time.
QUANTIZED_WEIGHTS: dict[str, tuple[Any, ...]] = {
    "num_bits": (8,),
    "type": ("float", "int"),
    "symmetric": (True,),
    "dynamic": (False,),
    "strategy": ("tensor", "channel", "block"),
    "block_structure": ([BLOCK, BLOCK],),
    "group_size": (),
    "actorder": (),
}
QUANTIZED_INPUTS = {"num_bits": (8,), "dynamic": (True,), "strategy": ("token", "group")}


def check_stored_quantization(facts: Facts) -> None:
    """Raise ValueError for a `quantization_config` other than 8-bit compressed-tensors with dynamic scales of inputs."""
    stated = part(facts, QUANTIZATION)
    if not stated:
        return
    if stated.get("quant_method") != "compressed-tensors":
        raise ValueError(f"{QUANTIZATION}={stated!r} is not supported, only compressed-tensors with 8-bit weights is")
    accept(stated, {"kv_cache_scheme": (), "quantization_status": ("compressed",)}, f"{QUANTIZATION}.")
    for name, group in part(stated, "config_groups").items():
        where = f"{QUANTIZATION}.config_groups.{name}."
        accept(part(group, "weights"), QUANTIZED_WEIGHTS, f"{where}weights.")
        accept(part(group, "input_activations"), QUANTIZED_INPUTS, f"{where}input_activations.")
        accept(group, {"output_activations": ()}, where)


def stated_rope(facts: Facts) -> Facts:
    """Return the object of the rotary embedding; it may appear under the old and the new name."""
    new, old = part(facts, "rope_parameters"), part(facts, "rope_scaling")
    if new and old and _without_base(new) != _without_base(old):
        raise ValueError(
            f"rope_parameters={new!r} and rope_scaling={old!r} state two rotary embeddings: keep only the right one"
        )
    return new or old


def _without_base(stated: Facts) -> Arguments:
    """Return the parameters without the base, under their new names."""
    kept = {name: value for name, value in stated.items() if name not in ("type", "rope_type", "rope_theta")}
    return {**kept, "rope_type": stated.get("rope_type", stated.get("type", "default"))}


def rope(facts: Facts, *, partial: float | None = None) -> Arguments:
    """Return the rotary embedding, from `rope_parameters` or `rope_theta` and `rope_scaling`.

    `partial` is the rotated share of each head, for classes that support it.
    """
    stated = stated_rope(facts)
    bases = {base for base in (stated.get("rope_theta"), facts.get("rope_theta")) if base is not None}
    if not bases:
        raise ValueError("it does not state rope_theta, neither by itself nor in rope_parameters")
    if len(bases) > 1:
        raise ValueError(f"rope_theta is stated twice, as {' and '.join(map(str, sorted(bases)))}")
    rest = _without_base(stated)
    if rest["rope_type"] not in ROPE_TYPES:
        raise ValueError(f"rope_type={rest['rope_type']!r} is not supported: choose one of {', '.join(ROPE_TYPES)}")
    if partial is None:
        accept(rest, {"partial_rotary_factor": (1.0,)})
    else:
        rest["partial_rotary_factor"] = partial
    return {**rest, "rope_theta": float(bases.pop())}


def dense(facts: Facts, *, partial: float | None = None) -> Arguments:
    """Return options whose names all classes except DiffusionGemma's share."""
    check_stored_quantization(facts)
    for kind in facts.get("layer_types") or ():
        accept({"layer_types": kind}, FULL)
    heads, hidden = require(facts, "num_attention_heads"), require(facts, "hidden_size")
    head_dim = facts.get("head_dim")
    if head_dim is None and hidden % heads:
        raise ValueError(f"hidden_size={hidden} is no multiple of num_attention_heads={heads}, and head_dim is not stated")
    return {
        **{name: require(facts, name) for name in SIZES},
        **{name: facts.get(name) for name in ENDS},
        "num_key_value_heads": facts.get("num_key_value_heads") or heads,
        "head_dim": head_dim or hidden // heads,
        "hidden_act": "silu",
        "tie_word_embeddings": facts.get("tie_word_embeddings") or False,
        "rope_parameters": rope(facts, partial=partial),
    }


def qwen2(facts: Facts) -> Arguments:
    """Return options of a network with biases on queries, keys and values only."""
    accept(facts, PLAIN)
    return dense(facts)


def llama(facts: Facts) -> Arguments:
    """Return options of a network with biases as stated."""
    accept(facts, PLAIN | {"layer_norm_eps": ()})  # if it is stated, iLLaDA's code uses LayerNorm
    return dense(facts) | {name: facts.get(name) or False for name in ("attention_bias", "mlp_bias")}


# I-DLM and UNO share SDAR's class and model_type, but masks attend causally and row p-1 predicts p.
CAUSAL_MASKS = "use_regular_causal"
EXPAND = "expand_token_id"
QK_NORM = "qk_norm"


def qwen3(facts: Facts, *, causal_masks: bool = False) -> Arguments:
    """Return options of a network with norms on queries and keys."""
    accept(facts, {**PLAIN, **off("use_relay", "mlp_bias", "is_causal"), CAUSAL_MASKS: (causal_masks,)})
    return dense(facts) | {"attention_bias": facts.get("attention_bias") or False}


def idlm(facts: Facts) -> Arguments:
    """Return options of a network with norms on queries and keys, whose masks attend causally."""
    return qwen3(facts, causal_masks=True)


def sdlm(facts: Facts) -> Arguments:
    """Return options of a network with biases on queries, keys and values only, whose windows are not causal."""
    accept(facts, {"causal_attn": (False,), "casual_attn": (False,), "text_mask_token_id": (151665,)})
    return qwen2(facts)


def wedlm(facts: Facts) -> Arguments:
    """Return options of a network with biases on queries, keys and values, or else with norms on queries and keys."""
    normed = facts.get(QK_NORM) is True
    accept(facts, {"attention_bias": (not normed,)})
    return (qwen3 if normed else qwen2)(facts)


def qwen3_moe(facts: Facts) -> Arguments:
    """Return options of a network with experts in some layers, with the defaults of SDAR's code."""
    return qwen3(facts) | {
        "num_experts": require(facts, "num_experts"),
        "moe_intermediate_size": require(facts, "moe_intermediate_size"),
        "num_experts_per_tok": stated_or(facts, "num_experts_per_tok", 2),
        "norm_topk_prob": stated_or(facts, "norm_topk_prob", True),
        "decoder_sparse_step": facts.get("decoder_sparse_step") or 1,
        "mlp_only_layers": facts.get("mlp_only_layers") or [],
    }


# In NVIDIA's files, other paradigms mean the network in training or one without drafts; "dream" shifts the rows of masks.
DLM = {"dlm_paradigm": ("bidirectional",), "dlm_type": ("llada",)}


def efficient_dlm(facts: Facts) -> Arguments:
    """Return options of a network with norms on queries and keys, in the form that is decoded."""
    accept(facts, DLM | {"disable_qk_norm": (False,), "dlm_arch": ("encoder",)})
    return qwen3(facts)


# Fields, besides sizes, that have the same name in the file and in what `dense` reads.
SAME = (*ENDS, QUANTIZATION, "head_dim", "layer_types", "rope_parameters", "rope_scaling", "rope_theta")
LLADA_MOE_HARMLESS = PLAIN | {
    "model_type": ("llada", "lladamoe"),  # the routing of LLaDA-MoE-v2 is unknown
    "clip_qkv": (),
    "moe_router_enable_expert_bias": (False,),
    "moe_router_score_function": ("softmax",),
    "norm_topk_prob": (False,),
    "qk_layernorm": (True,),
    "routed_scaling_factor": (1,),
    "shared_expert_intermediate_size": (),
}
LLADA_MOE_SAME = ("num_key_value_heads", "tie_word_embeddings", "num_experts", "num_experts_per_tok", "attention_bias")


def llada_moe(facts: Facts) -> Arguments:
    """Return options of LLaDA-MoE: experts in every layer; the scores of the chosen ones are not normalised again."""
    accept(facts, LLADA_MOE_HARMLESS)
    for kind in facts.get("moe_layer_freq") or ():
        accept({"moe_layer_freq": kind}, {"moe_layer_freq": (1,)})
    width = require(facts, "expert_intermediate_size")
    for name in ("qk_layernorm", "num_experts_per_tok"):
        require(facts, name)
    same = {name: facts.get(name) for name in (*SIZES, *SAME, *LLADA_MOE_SAME) if name != "intermediate_size"}
    return qwen3_moe(same | {"intermediate_size": width, "moe_intermediate_size": width, "norm_topk_prob": False})


LLADA_HARMLESS = {
    "activation_type": ("silu",),
    "block_group_size": (1,),
    "block_type": ("llama",),
    "layer_norm_type": ("rms",),
    "layer_norm_with_affine": (True,),
    "rope": (True,),
    "rope_full_precision": (True,),
    **off(
        "alibi",
        "attention_layer_norm",
        "bias_for_layer_norm",
        "include_bias",
        "input_emb_norm",
        "multi_query_attention",
        "scale_logits",
    ),
}


def llada(facts: Facts) -> Arguments:
    """Return options of a Llama under LLaDA's names."""
    accept(facts, LLADA_HARMLESS)
    hidden, ratio, vocabulary = require(facts, "d_model"), facts.get("mlp_ratio"), require(facts, "vocab_size")
    width = facts.get("mlp_hidden_size")
    renamed = {
        "vocab_size": facts.get("embedding_size") or vocabulary,
        "hidden_size": hidden,
        "intermediate_size": hidden * require({"mlp_ratio": ratio}, "mlp_ratio") if width is None else width,
        "num_hidden_layers": require(facts, "n_layers"),
        "num_attention_heads": require(facts, "n_heads"),
        "num_key_value_heads": facts.get("n_kv_heads"),
        "max_position_embeddings": require(facts, "max_sequence_length"),
        "rms_norm_eps": stated_or(facts, "rms_norm_eps", 1e-5),
        "tie_word_embeddings": facts.get("weight_tying"),
    }
    return dense({name: facts.get(name) for name in SAME} | renamed)


LLADA2_HARMLESS = {
    # LLaDA2.2 limits experts per block by `expert_capacity`, and edits by delete and split tokens.
    "delete_token_id": (),
    "expert_capacity": (0,),
    "split_token_id": (),
    "hidden_act": ("silu",),
    "moe_router_enable_expert_bias": (True,),
    "num_nextn_predict_layers": (0,),
    "router_dtype": ("fp32", "float32"),
    "score_function": ("sigmoid",),
    "use_rmsnorm": (True,),
    **off("multi_gate", "norm_head", "norm_softmax", "use_bias", "use_sliding_window"),
}
LLADA2_SAME = ("num_experts_per_tok", "moe_intermediate_size", "n_group", "topk_group", "first_k_dense_replace")


def llada2(facts: Facts) -> Arguments:
    """Return options of LLaDA2: grouped experts, biased sigmoid scores, partial rotary heads."""
    accept(facts, LLADA2_HARMLESS)
    share = facts.get("partial_rotary_factor")
    if share is None:
        share = require(part(facts, "rope_parameters"), "partial_rotary_factor")
    arguments = dense(facts, partial=float(share))
    accept(facts, {"rotary_dim": (int(arguments["head_dim"] * share),)})
    shared, width = require(facts, "num_shared_experts"), require(facts, "moe_intermediate_size")
    accept(facts, {"moe_shared_expert_intermediate_size": (width * shared,)})
    return (
        arguments
        | {name: require(facts, name) for name in LLADA2_SAME}
        | {
            "n_routed_experts": require(facts, "num_experts"),
            "n_shared_experts": shared,
            "routed_scaling_factor": require(facts, "routed_scaling_factor"),
            "norm_topk_prob": stated_or(facts, "norm_topk_prob", True),
            "use_qk_norm": stated_or(facts, "use_qk_norm", True),
            "attention_bias": facts.get("use_qkv_bias") or False,
        }
    )


NEMOTRON_HARMLESS = {
    **DLM,
    **PLAIN,
    **off("attention_bias", "mlp_bias"),
    "sliding_window": (),
    "num_ar_layers": (0,),
    "num_diffusion_layers": (0,),
}


def nemotron_labs_diffusion(facts: Facts) -> Arguments:
    """Return options of a Ministral network, which scales queries by their position with factors from config.json."""
    accept(facts, NEMOTRON_HARMLESS)
    require(facts, "head_dim")
    arguments = dense(facts)
    for name in ("llama_4_scaling_beta", "original_max_position_embeddings"):
        require(arguments["rope_parameters"], name)
    return arguments


# How transformers loads and runs a network, which dlstep decides, not a file.
LOADING = (
    "attn_implementation",
    "auto_map",
    "experts_implementation",
    "_attn_implementation",
    "_attn_implementation_internal",
    "_experts_implementation",
    "_experts_implementation_internal",
    # Labels of a classifier; transformers would build a list of `num_labels` names.
    "id2label",
    "label2id",
    "num_labels",
)


def _own_facts(facts: Facts) -> Arguments:
    """Return a copy of a file that transformers wrote, without fields about loading and quantization at any depth."""
    kept = {name: value for name, value in facts.items() if name not in (*LOADING, QUANTIZATION)}
    return {name: _own_facts(value) if isinstance(value, Mapping) else value for name, value in kept.items()}


def native(facts: Facts) -> Arguments:
    """Return options from a file that transformers wrote; only the rotary base must be stated."""
    check_stored_quantization(facts)
    accept(facts, {"partial_rotary_factor": (1.0,)})
    kept = {name: value for name, value in _own_facts(facts).items() if name not in ("rope_theta", "rope_scaling")}
    return kept | {"rope_parameters": rope(facts)}


def native_moe(facts: Facts) -> Arguments:
    """Return options as `native` does, without sliding windows: they would apply to all layers."""
    accept(facts, {"use_sliding_window": (False,)})
    return native(facts)


def diffusion_gemma(facts: Facts) -> Arguments:
    """Return options from a file that transformers wrote, with a rotary embedding per layer kind."""
    check_stored_quantization(facts)
    text, vision = part(facts, "text_config"), part(facts, "vision_config")
    stated = part(text, "rope_parameters")
    accept(facts, {"rope_parameters": (), "rope_scaling": ()})
    # "all" attends prompts in both directions, but here they are causal. "vision" is for images.
    accept(text, {"rope_scaling": (), "use_bidirectional_attention": ("vision",)})
    accept(vision, {"model_type": ("gemma4_vision",)})
    for kind in ("full_attention", "sliding_attention"):
        if part(stated, kind).get("rope_theta") is None:
            raise ValueError(f"it does not state rope_theta for {kind}, in rope_parameters of its text_config")
    return _own_facts(facts)


# Fields that never change what a network computes, grouped by the reason.
HARMLESS = frozenset((
    # Says what the file is about, or where it comes from.
    "_name_or_path", "_commit_hash", "architectures", "custom_pipelines", "dtype", "license", "model_type",
    "tokenizer_class", "torch_dtype", "transformers_version", "transformers_weights", "unsloth_version",
    # Says how transformers loads, runs or returns, which dlstep decides.
    *LOADING, "attention_kernel", "chunk_size_feed_forward", "flash_attention", "init_device", "is_encoder_decoder",
    "kernel_config", "moe_backend", "output_attentions", "output_hidden_states", "output_router_logits", "precision",
    "pretraining_tp", "return_dict", "use_cache", "use_flash_attention", "debug", "ep_size", "use_deepep",
    # Matters in training only.
    "attention_dropout", "embedding_dropout", "fuse_cross_entropy", "init_cutoff_factor", "init_fn", "init_std",
    "initializer_range", "mtp_loss_scaling_factor", "output_dropout", "residual_dropout", "router_aux_loss_coef",
    "ada_dlm_loss_ratio", "ada_perm_ratio_global", "ada_perm_ratio_per_block", "adaptive_mask_rate", "ar_loss_weight",
    "complementary_mask", "diff_loss_weight", "dlm_loss_weight", "dp_varying_mask_ratio", "global_loss_avg",
    "micro_forward", "multi_sampling", "num_skip_loss_tokens", "prefix_ratio", "random_length_prob", "skip_checkpoint",
    "tok_mask_half_life_ratio", "block_masking_probability", "mask_block_sizes", "prefix_probability", "resid_pdrop",
    "sampling_eps", "truncate_probability",
    # Belongs to a part that another field switches off, which is checked.
    "alibi_bias_max", "attention_layer_norm_with_affine", "dense_intermediate_size", "max_window_layers", "num_mtp_layers",
    "sliding_window",
    # Is a default of the authors' decoding, which `configs/published` states.
    "num_diffusion_steps",
    # Belongs to tasks other than generating.
    "finetuning_task", "problem_type",
    # Marks places in prompts, which requests give as ids.
    "bos_token_id", "boi_token_id", "eoi_token_id", "image_token_id", "pad_token_id",
    # Is read elsewhere: token ids, the size of a block, and this engine's own section.
    "block_size", "bd_size", "canvas_length", "dlstep", "eos_token_id", EXPAND, "include_qkv_bias", "mask_token_id",
    "vision_config",
))  # fmt: skip
# Names that configuration classes and networks of transformers look up without declaring them as fields.
UNDECLARED = frozenset((
    "global_head_dim", "head_dim", "num_global_key_value_heads", "partial_rotary_factor", "per_layer_config", "rope_scaling",
    "rope_theta",
))  # fmt: skip


class Stated(UserDict[str, Any]):
    """The fields of a config.json. `names` records which of them were looked up."""

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.names.add(name)
        return super().__getitem__(name)


def unknown_fields(stated: Stated, arguments: Facts, config: PretrainedConfig) -> tuple[str, ...]:
    """Return names of fields with a value that are neither harmless nor used for `config`, which was made from `arguments`."""
    text = config.get_text_config()
    foreign = set(arguments) - _known(config)
    if text is config:
        foreign -= UNDECLARED
    unknown = _stating(stated, (set(stated) - stated.names) | foreign)
    if text is not config and isinstance(inner := stated.get("text_config"), dict):
        unknown += [f"text_config.{name}" for name in _stating(inner, set(inner) - _known(text) - UNDECLARED)]
    return tuple(sorted(unknown))


def _known(config: PretrainedConfig) -> set[str]:
    """Return names that a configuration class declares."""
    return {field.name for field in fields(config)} | set(dir(type(config))) | set(config.attribute_map)


def _stating(facts: Facts, names: set[str]) -> list[str]:
    """Return those of `names` that have a value in `facts` and are not harmless."""
    return [name for name in names - HARMLESS if facts.get(name) is not None]
