"""DiffusionGemma over pages: an encoder for final tokens, a decoder for canvases, carried state.

Both are unmodified transformers classes. They expect a cache, so they get an empty one: keys and
values go through the pages. The decoder recomputes its self-conditioning signal from the previous
logits; here the signal is stored, which is smaller by the ratio of vocabulary to hidden size.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Float32
from torch import Tensor, nn
from transformers import PreTrainedModel

from dlstep_kernels import mean_embeddings

from ...core import DlstepError, Plan, Span, Spec
from ...distributed.ranks import ALONE, Ranks
from ..sharding import VocabRows
from ..transformers_internals import NO_MASKS, EmptyCache, cache_argument
from .batch import Batch, Memory
from .network import PagedNetwork


class CanvasNetwork(PagedNetwork):
    """A network that encodes final tokens, predicting nothing, and denoises whole canvases."""

    def __init__(self, model: PreTrainedModel, spec: Spec, ranks: Ranks = ALONE) -> None:
        super().__init__(model, spec, ranks)
        text: Any = model.config.get_text_config()
        if text.use_bidirectional_attention == "all":
            raise ValueError("use_bidirectional_attention='all' is not supported: final tokens are encoded causally")
        self._network: Any = model
        self._decoder: Any = self._network.model.decoder
        self._cache = {cache_argument(model): EmptyCache(self.shapes, model.dtype, model.device)}
        self.canvas_length = self._network.config.canvas_length or 0
        self._hidden_size: int = text.hidden_size

    def carried_size(self, slots: int) -> tuple[int, int, int]:
        """Return the sizes of `Memory.carried`: place 0 and two places for each carry slot."""
        return 1 + 2 * slots, self.canvas_length, self._hidden_size

    def forwards(self, plan: Plan) -> tuple[Plan, ...]:
        """Split the plan into its encoded spans and its denoised spans, in this order."""
        for span in plan.spans:
            self._check(plan, span)
        modes = [tuple([span for span in plan.spans if span.mode == mode]) for mode in ("encode", "denoise")]
        return tuple([replace(plan, spans=spans) for spans in modes if spans])

    def _check(self, plan: Plan, span: Span) -> None:
        if span.mode == "encode":
            if span.sampled or span.soft is not None:
                raise DlstepError(f"step {plan.step}, request {span.id}: an encoded span cannot have sampled or soft rows")
        elif not len(span.tokens) == len(span.sampled) == self.canvas_length or span.carry == "none" or span.soft is not None:
            raise DlstepError(
                f"step {plan.step}, request {span.id}: the network denoises whole canvases of {self.canvas_length} positions, "
                f"carrying something over; the span feeds {len(span.tokens)}, samples {len(span.sampled)}, carry={span.carry!r}"
            )

    def forward(self, batch: Batch, memory: Memory) -> Float32[Tensor, "w vocab"] | None:
        """Encode and return None, or return logits of canvases and store their carried state."""
        paged, carry = self._context(batch, memory), batch.carry
        if carry is None:
            self._network.model.encoder.language_model(
                input_ids=batch.tokens,
                position_ids=batch.positions,
                attention_mask=NO_MASKS,
                **self._cache,
                paged=paged,
            )
            return None
        held = memory.carried.index_select(0, carry.found).masked_fill(carry.fresh[:, None, None] != 0, 0.0)
        with _signalling(self._decoder.self_conditioning, held.flatten(0, 1)[None]):
            logits = self._network(
                decoder_input_ids=batch.tokens,
                decoder_position_ids=batch.positions,
                decoder_attention_mask=NO_MASKS,
                **self._cache,
                paged=paged,
            ).logits[0]
        temperatures = batch.settings.temperatures
        assert temperatures is not None, "canvases are sampled at a temperature"
        memory.carried.index_copy_(0, carry.left, self._signal(logits, temperatures).view_as(held))
        return logits

    def _signal(self, logits: Float32[Tensor, "n vocab"], temperatures: Float32[Tensor, " n"]) -> Float[Tensor, "n hidden"]:
        """Return the next self-conditioning signal: mean embeddings, rounded as by transformers."""
        embedding = self._decoder.embed_tokens
        scale = embedding.embed_scale.to(embedding.weight.dtype)
        if isinstance(embedding, VocabRows):  # each rank weighs its rows of whole distributions
            cut = embedding.cut
            scaled = (logits / temperatures[:, None]).to(embedding.weight.dtype)
            shares = scaled.softmax(-1, dtype=torch.float32)[:, cut.first : cut.first + cut.count]
            return self.ranks.add_up(shares.to(embedding.weight.dtype) @ embedding.weight) * scale
        # The PyTorch twin on every device: the kernel is not faster, and may round differently.
        return mean_embeddings.twin(logits, temperatures, embedding.weight) * scale


@contextmanager
def _signalling(module: nn.Module, signal: Float[Tensor, "1 n hidden"]) -> Iterator[None]:
    """Replace the signal in calls of `module(embeddings, signal)` while the context is open."""
    handle = module.register_forward_pre_hook(lambda _, inputs: (inputs[0], signal))
    try:
        yield
    finally:
        handle.remove()
