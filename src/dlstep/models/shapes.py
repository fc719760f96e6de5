"""Shapes of a network that a driver needs: keys and values, embedding and head."""

from dataclasses import dataclass

import torch
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel

GIB = 1 << 30


def in_gib(count: int) -> str:
    """Format a number of bytes in GiB for messages."""
    return f"{count / GIB:.3g} GiB"


@dataclass(frozen=True, slots=True)
class KVShape:
    """Keys and values of a position in one layer, on one rank.

    `window` is the sliding window (None: full attention), `group` the query heads per key head.
    """

    kv_heads: int
    head_dim: int
    window: int | None
    group: int = 1

    @property
    def view(self) -> tuple[int | None, int]:
        """Return the facts that the attention layout depends on."""
        return self.window, self.group


def kv_shapes(config: PretrainedConfig, size: int = 1) -> tuple[KVShape, ...]:
    """Return the shapes of keys and values by layer, on each of `size` ranks.

    If there are fewer key heads than ranks, several ranks hold the same head.
    """
    text = config.get_text_config()
    facts = text.to_dict()
    kinds = facts.get("layer_types") or ["full_attention"] * facts["num_hidden_layers"]
    # Keys are layer numbers as strings, possibly with leading zeros.
    of_layer = {int(name): own for name, own in (facts.get("per_layer_config") or {}).items()}
    shapes: list[KVShape] = []
    for number, kind in enumerate(kinds):
        own = facts | of_layer.get(number, {})
        heads = own["num_attention_heads"]
        kv_heads = own.get("num_key_value_heads") or heads
        head_dim = own.get("head_dim") or own["hidden_size"] // heads
        window = own.get("sliding_window") if kind == "sliding_attention" else None
        own_heads = max(kv_heads // size, 1)
        shapes.append(KVShape(own_heads, head_dim, window, heads // size // own_heads))
    return tuple(shapes)


def kv_bytes_per_token(shapes: tuple[KVShape, ...], dtype: torch.dtype) -> int:
    """Return the KV bytes of one position in all layers; sliding windows save no memory."""
    return sum(2 * shape.kv_heads * shape.head_dim for shape in shapes) * dtype.itemsize


def embedding_of(network: PreTrainedModel) -> nn.Embedding:
    """Return the embedding layer, which covers at least the ids of the tokenizer."""
    embedding = network.get_input_embeddings()
    assert isinstance(embedding, nn.Embedding), f"{type(network).__name__} embeds with a {type(embedding).__name__}"
    return embedding


def head_of(network: PreTrainedModel) -> nn.Module:
    """Return the layer that computes logits from hidden states."""
    head = network.get_output_embeddings()
    assert head is not None, f"{type(network).__name__} has no head"
    return head
