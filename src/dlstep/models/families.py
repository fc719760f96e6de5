"""Families of networks that can be decoded: one entry each."""

from dataclasses import dataclass

from torch import nn
from transformers import PretrainedConfig, PreTrainedModel, Qwen3ForCausalLM


@dataclass(frozen=True, slots=True)
class Family:
    """A class of transformers, and what its configuration does not say.

    `head_shift` and `accept_rule` are used where the checkpoint names none.
    """

    network: type[PreTrainedModel]
    head_shift: int = 0
    accept_rule: str = "A"


@dataclass(frozen=True, slots=True)
class KVShape:
    """What a driver must keep of each position: `windows` has one entry a layer, None being full attention."""

    kv_heads: int
    head_dim: int
    windows: tuple[int | None, ...]


FAMILIES: dict[str, Family] = {
    "Qwen3ForCausalLM": Family(Qwen3ForCausalLM),
}


def kv_shape(config: PretrainedConfig) -> KVShape:
    """The shape of keys and values of a network with this configuration."""
    facts = config.to_dict()
    heads = facts["num_attention_heads"]
    window = facts.get("sliding_window")
    layers = facts.get("layer_types") or ["full_attention"] * facts["num_hidden_layers"]
    return KVShape(
        facts.get("num_key_value_heads") or heads,
        facts.get("head_dim") or facts["hidden_size"] // heads,
        tuple(window if layer == "sliding_attention" else None for layer in layers),
    )


def embedding_of(network: PreTrainedModel) -> nn.Embedding:
    """What turns ids into vectors; it knows at least the ids of the tokenizer."""
    embedding = network.get_input_embeddings()
    assert isinstance(embedding, nn.Embedding), f"{type(network).__name__} embeds with a {type(embedding).__name__}"
    return embedding


def head_of(network: PreTrainedModel) -> nn.Module:
    """What turns hidden states into logits."""
    head = network.get_output_embeddings()
    assert head is not None, f"{type(network).__name__} has no head"
    return head
