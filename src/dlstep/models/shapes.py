"""Shapes of a network that a driver needs: those of its keys and values, and where it embeds and reads out."""

from dataclasses import dataclass

import torch
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel

GIB = 1 << 30


def in_gib(count: int) -> str:
    """Bytes, as messages tell them."""
    return f"{count / GIB:.3g} GiB"


@dataclass(frozen=True, slots=True)
class KVShape:
    """Keys and values of a position for one layer, and how they are read.

    `window` None is full attention; `group` query heads share a key head.
    """

    kv_heads: int
    head_dim: int
    window: int | None
    group: int = 1

    @property
    def view(self) -> tuple[int | None, int]:
        """The facts that the layout of its attention depends on."""
        return self.window, self.group


def kv_shapes(config: PretrainedConfig, size: int = 1) -> tuple[KVShape, ...]:
    """The shapes of keys and values of a network with this configuration, layer by layer, on each of `size` ranks.

    Where there are fewer key heads than ranks, several ranks hold the same one.
    """
    text = config.get_text_config()
    facts = text.to_dict()
    kinds = facts.get("layer_types") or ["full_attention"] * facts["num_hidden_layers"]
    # Layers are named by numbers, which may have leading zeros.
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
    """Bytes of keys and values that one position takes in all layers; those with a sliding window keep every position, too."""
    return sum(2 * shape.kv_heads * shape.head_dim for shape in shapes) * dtype.itemsize


def embedding_of(network: PreTrainedModel) -> nn.Embedding:
    """The layer that turns ids into vectors; it knows at least the ids of the tokenizer."""
    embedding = network.get_input_embeddings()
    assert isinstance(embedding, nn.Embedding), f"{type(network).__name__} embeds with a {type(embedding).__name__}"
    return embedding


def head_of(network: PreTrainedModel) -> nn.Module:
    """The layer that turns hidden states into logits."""
    head = network.get_output_embeddings()
    assert head is not None, f"{type(network).__name__} has no head"
    return head
