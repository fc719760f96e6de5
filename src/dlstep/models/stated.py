"""Fields of a config.json that no code reads. Those known to be harmless are listed here; the others are reported."""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from transformers import PretrainedConfig

# Fields that never change what a network computes, grouped by the reason.
HARMLESS: dict[str, tuple[str, ...]] = {
    "says what the file is about, or where it comes from": (
        "_name_or_path", "_commit_hash", "architectures", "auto_map", "custom_pipelines", "dtype", "license", "model_type",
        "tokenizer_class", "torch_dtype", "transformers_version", "transformers_weights", "unsloth_version",
    ),
    "says how transformers loads, runs or returns, which dlstep decides": (
        "_attn_implementation", "_attn_implementation_internal", "_experts_implementation", "_experts_implementation_internal",
        "attn_implementation", "chunk_size_feed_forward", "experts_implementation", "flash_attention", "init_device",
        "is_encoder_decoder", "kernel_config", "output_attentions", "output_hidden_states", "output_router_logits", "precision",
        "pretraining_tp", "return_dict", "use_cache", "use_flash_attention",
    ),
    "matters in training only": (
        "attention_dropout", "embedding_dropout", "fuse_cross_entropy", "init_cutoff_factor", "init_fn", "init_std",
        "initializer_range", "mtp_loss_scaling_factor", "output_dropout", "residual_dropout", "router_aux_loss_coef",
        "ada_dlm_loss_ratio", "ada_perm_ratio_global", "ada_perm_ratio_per_block", "adaptive_mask_rate", "ar_loss_weight",
        "complementary_mask", "diff_loss_weight", "dlm_loss_weight", "dp_varying_mask_ratio", "global_loss_avg",
        "multi_sampling", "num_skip_loss_tokens", "prefix_ratio", "random_length_prob", "tok_mask_half_life_ratio",
    ),
    "belongs to a part that another field switches off, which is checked": (
        "alibi_bias_max", "attention_layer_norm_with_affine", "max_window_layers", "num_mtp_layers", "sliding_window",
    ),
    "belongs to tasks other than generating": ("finetuning_task", "id2label", "label2id", "num_labels", "problem_type"),
    "marks places in prompts, which requests give as ids": (
        "bos_token_id", "boi_token_id", "eoi_token_id", "image_token_id", "pad_token_id",
    ),
    "is read elsewhere: token ids, the size of a block, and this engine's own section": (
        "block_size", "bd_size", "canvas_length", "dlstep", "eos_token_id", "include_qkv_bias", "mask_token_id",
        "vision_config",
    ),
}  # fmt: skip
# Names that configuration classes and networks of transformers look up without declaring them as fields.
UNDECLARED = frozenset((
    "global_head_dim", "head_dim", "num_global_key_value_heads", "partial_rotary_factor", "per_layer_config", "rope_scaling",
    "rope_theta",
))  # fmt: skip
_HARMLESS = frozenset(name for names in HARMLESS.values() for name in names)


class Stated(Mapping[str, Any]):
    """The fields of a config.json. `names` records which of them were looked up."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self._facts = facts
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.names.add(name)
        return self._facts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._facts)

    def __len__(self) -> int:
        return len(self._facts)


def unknown_fields(stated: Stated, arguments: Mapping[str, Any], config: PretrainedConfig) -> tuple[str, ...]:
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


def _stating(facts: Mapping[str, Any], names: set[str]) -> list[str]:
    """Return those of `names` that have a value in `facts` and are not harmless."""
    return [name for name in names - _HARMLESS if facts.get(name) is not None]
