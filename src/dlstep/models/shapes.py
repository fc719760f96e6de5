"""What a driver must know of a network: the shapes of its keys and values, and where it embeds and reads out."""

from dataclasses import dataclass

import torch
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel


@dataclass(frozen=True, slots=True)
class KVShape:
    """What a driver must keep of each position for one layer; `window` None is full attention."""

    kv_heads: int
    head_dim: int
    window: int | None


def kv_shapes(config: PretrainedConfig) -> tuple[KVShape, ...]:
    """The shapes of keys and values of a network with this configuration, layer by layer."""
    text = config.get_text_config()
    facts = text.to_dict()
    kinds = facts.get("layer_types") or ["full_attention"] * facts["num_hidden_layers"]
    shapes: list[KVShape] = []
    for number, kind in enumerate(kinds):
        own = facts | (facts.get("per_layer_config") or {}).get(str(number), {})
        heads = own["num_attention_heads"]
        shapes.append(
            KVShape(
                own.get("num_key_value_heads") or heads,
                own.get("head_dim") or own["hidden_size"] // heads,
                own.get("sliding_window") if kind == "sliding_attention" else None,
            )
        )
    return tuple(shapes)


def kv_bytes_per_token(shapes: tuple[KVShape, ...], dtype: torch.dtype) -> int:
    """Bytes of keys and values that one position takes in all layers; those with a sliding window keep every position, too."""
    return sum(2 * shape.kv_heads * shape.head_dim for shape in shapes) * dtype.itemsize


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
