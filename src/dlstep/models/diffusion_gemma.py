"""DiffusionGemma over pages: its encoder for final tokens, its decoder for canvases, and what a canvas carries on.

Both are the unmodified classes of transformers. They expect a cache, so they are given one that holds nothing: keys and
values go through the pages, as everywhere. The decoder recomputes its self-conditioning signal from the logits of the
forward before; here the signal itself is kept, which is smaller by the ratio of vocabulary to hidden size.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor, nn
from transformers import DiffusionGemmaForBlockDiffusion

from dlstep_kernels.mean import mean_embeddings

from .attention import NO_MASKS, PagedContext
from .shapes import KVShape, kv_shapes


@dataclass(frozen=True, slots=True)
class _NoLayer:
    """A layer of a cache without positions."""

    keys: Float[Tensor, "1 kv_heads 0 head_dim"]
    values: Float[Tensor, "1 kv_heads 0 head_dim"]


class _NoCache:
    """Stands where transformers expects its cache: a forward sees its own keys and values, the attention adds the pages'."""

    is_compileable = False

    def __init__(self, shapes: tuple[KVShape, ...], dtype: torch.dtype, device: torch.device) -> None:
        empty = [torch.empty((1, shape.kv_heads, 0, shape.head_dim), dtype=dtype, device=device) for shape in shapes]
        self.layers = [_NoLayer(nothing, nothing) for nothing in empty]

    def update(self, keys: Tensor, values: Tensor, layer_idx: int) -> tuple[Tensor, Tensor]:
        """Store keys and values; the encoder calls this."""
        del layer_idx
        return keys, values


class CanvasNetwork:
    """The two modes of a DiffusionGemma, for packed rows."""

    def __init__(self, network: DiffusionGemmaForBlockDiffusion) -> None:
        text: Any = network.config.get_text_config()
        if text.use_bidirectional_attention == "all":
            raise ValueError("use_bidirectional_attention='all' is not supported: final tokens are encoded causally")
        self._network: Any = network
        self._decoder: Any = network.model.decoder
        self._cache = _NoCache(kv_shapes(network.config), network.dtype, network.device)
        self.canvas_length: int = network.config.canvas_length or 0
        self.hidden_size: int = text.hidden_size

    def encode(self, tokens: Int64[Tensor, "1 n"], positions: Int64[Tensor, "1 n"], paged: PagedContext) -> None:
        """Store keys and values of final tokens."""
        self._network.model.encoder.language_model(
            input_ids=tokens, position_ids=positions, attention_mask=NO_MASKS, past_key_values=self._cache, paged=paged
        )

    def denoise(
        self,
        tokens: Int64[Tensor, "1 n"],
        positions: Int64[Tensor, "1 n"],
        signal: Float[Tensor, "n hidden"],
        paged: PagedContext,
    ) -> Float32[Tensor, "n vocab"]:
        """Logits of all rows of canvases, given what their forwards before said (zeros where there was none)."""
        with _signalling(self._decoder.self_conditioning, signal[None]):
            return self._network(
                decoder_input_ids=tokens,
                decoder_position_ids=positions,
                decoder_attention_mask=NO_MASKS,
                past_key_values=self._cache,
                paged=paged,
            ).logits[0]

    def signal(self, logits: Float32[Tensor, "n vocab"], temperatures: Float32[Tensor, " n"]) -> Float[Tensor, "n hidden"]:
        """Self-conditioning signal for the next forward: the mean embedding, rounded as transformers does."""
        embedding = self._decoder.embed_tokens
        # The twin on every device: its kernel is not faster, and may round the other way.
        return mean_embeddings(logits, temperatures, embedding.weight) * embedding.embed_scale.to(embedding.weight.dtype)


@contextmanager
def _signalling(module: nn.Module, signal: Float[Tensor, "1 n hidden"]) -> Iterator[None]:
    """`module`, called with embeddings and a signal, gets this signal instead, as long as the context is open."""
    handle = module.register_forward_pre_hook(lambda _, given: (given[0], signal))
    try:
        yield
    finally:
        handle.remove()
