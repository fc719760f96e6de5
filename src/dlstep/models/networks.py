"""Networks over KV cache pages: the interface that drivers use, and the two kinds of networks.

`PlainNetwork` is a body and a head. `CanvasNetwork` is DiffusionGemma: an encoder for final tokens, a decoder for canvases,
and state that canvases carry. Both are unmodified transformers classes. DiffusionGemma's expect a cache, so they get an
empty one: keys and values go through the pages. Its decoder recomputes its self-conditioning signal from the previous
logits; here the signal is stored, which is smaller by the ratio of vocabulary to hidden size.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor, nn
from transformers import DiffusionGemmaForBlockDiffusion

from dlstep_kernels import (
    AttentionLayout,
    Drawn,
    SamplerConfig,
    Settings,
    SoftRows,
    Tiles,
    has_kernels,
    head_and_sample,
    merge_embeddings,
    policy_of,
    sample,
    token_shares,
)
from dlstep_kernels.head import logits_of
from dlstep_kernels.vocabulary import Share, gather_columns

from ..core import Json, Plan, Spec
from .checkpoint import Checkpoint
from .layers import LayerPages, PagedContext, Watch, shared_gates
from .shapes import KVShape, embedding_of, head_of, in_gib, kv_bytes_per_token, kv_shapes
from .sharding import VocabRows, vocabulary_shard
from .transformers_internals import NO_MASK, NO_MASKS, EmptyCache, cache_argument

View = tuple[int | None, int]  # sliding window (None: full), query heads per key head
Process = Callable[[Float32[Tensor, "w ids"], Spec], Float32[Tensor, "w ids"]]


@dataclass(frozen=True, slots=True)
class Carry:
    """Indices of the carried state that each canvas of a denoising batch reads and writes.

    A carry slot has two places, for even and odd draws. A draw reads one and writes the other, so
    that a plan can be run again. A `fresh` canvas reads zeros. Place 0 is for padding.
    """

    found: Int64[Tensor, " s"]
    left: Int64[Tensor, " s"]
    fresh: Int64[Tensor, " s"]


@dataclass(frozen=True, slots=True)
class Batch:
    """One forward pass as tensors: `n` packed rows, `w` sampled positions.

    `slot_mapping` is where each row's keys and values go (-1: nowhere), `layouts` what rows see, by
    view. `sampled_rows` are the rows that predict the sampled positions, in plan order; entries
    from `filled` on are padding. `soft` are rows with blended embeddings, `carry` is canvas state.
    `gates` has 1 for each row of a draft and 0 for other rows; None if the network has no adapter for drafts.
    `process` changes the logits of the sampled rows.
    """

    tokens: Int64[Tensor, "1 n"]
    positions: Int64[Tensor, "1 n"]
    slot_mapping: Int64[Tensor, " n"]
    layouts: Mapping[View, AttentionLayout | Tiles]
    sampled_rows: Int64[Tensor, " w"]
    settings: Settings
    sampler: SamplerConfig
    soft: SoftRows | None = None
    carry: Carry | None = None
    filled: Int64[Tensor, "1"] | None = None
    gates: Int64[Tensor, " n"] | None = None
    process: Process | None = None


def batch_of(
    tensors: Mapping[str, Tensor],
    layouts: Mapping[View, AttentionLayout | Tiles],
    sampler: SamplerConfig,
    process: Process | None = None,
) -> Batch:
    """Return the batch of these named tensors, without token masks; `process` changes the logits."""
    soft = None
    if "soft_rows" in tensors:
        rows = tensors["soft_rows"]  # a row of -1 is padding
        ids, probabilities = (tensors[name].view(len(rows), -1) for name in ("soft_ids", "soft_probabilities"))
        soft = SoftRows(rows, ids, probabilities, tensors["soft_modes"], tensors["soft_factors"])
    return Batch(
        tokens=tensors["tokens"][None],
        positions=tensors["positions"][None],
        slot_mapping=tensors["slot_mapping"],
        layouts=layouts,
        sampled_rows=tensors["sampled_rows"],
        settings=Settings.of(tensors, len(tensors["sampled_rows"])),
        sampler=sampler,
        soft=soft,
        carry=Carry(tensors["found"], tensors["left"], tensors["fresh"]) if "found" in tensors else None,
        filled=tensors.get("filled"),
        gates=tensors.get("gates"),
        process=process,
    )


@dataclass(frozen=True, slots=True)
class Memory:
    """KV cache pages of each layer, and state that canvases carry to their next forward pass."""

    key_pages: LayerPages
    value_pages: LayerPages
    carried: Float[Tensor, "places canvas hidden"]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors."""
        return (*self.key_pages, *self.value_pages, self.carried)

    def copy(self, other: "Memory") -> None:
        """Copy the content of `other`, which must not have more pages."""
        for own, its in zip(self.tensors, other.tensors, strict=True):
            own[: len(its)].copy_(its)

    @contextmanager
    @torch.inference_mode()
    def restoring(self, slots: Int64[Tensor, " n"], places: Int64[Tensor, " s"]) -> Generator[None]:
        """Restore these slots of the pages and these places of the carried state at the end of the context."""
        changed = [(pages, slots) for pages in (*self.key_pages, *self.value_pages)] + [(self.carried, places)]
        before = [tensor.index_select(0, indices) for tensor, indices in changed]
        try:
            yield
        finally:
            for (tensor, indices), content in zip(changed, before, strict=True):
                tensor[indices] = content  # `index_copy_` does not support FP8


def zeros(size: tuple[int, ...], *, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return zeros. On a CPU they take memory only where they are written, unlike those of `torch.zeros`."""
    if device.type != "cpu":
        return torch.zeros(size, dtype=dtype, device=device)
    return torch.from_numpy(np.zeros(size, f"u{dtype.itemsize}")).view(dtype)


PLAIN = (bool, int, float, str, type(None))


def _kind(layer: nn.Module) -> object:
    """Return all properties of a layer except its index and the values of its tensors."""
    modules: list[object] = []
    for name, module in layer.named_modules():
        facts = {key: value for key, value in vars(module).items() if isinstance(value, PLAIN) and key != "layer_idx"}
        modules.append((name, type(module), frozenset(facts.items())))
    tensors: list[Any] = [*layer.named_parameters(), *layer.named_buffers()]
    return tuple(modules), tuple((name, tuple(tensor.shape), tensor.dtype) for name, tensor in tensors)


Answer = Float[Tensor, "w vocab"] | Drawn


class PagedNetwork(ABC):
    """A transformers model over KV cache pages. It owns the weights, and `Memory` the pages."""

    canvas_length = 0  # rows of each span of a sampling forward pass; 0: any number
    gated = False  # whether it has an adapter that applies only to the rows of drafts
    watch: Watch | None = None  # called with the queries of each layer

    def __init__(self, checkpoint: Checkpoint, spec: Spec) -> None:
        model, ranks = self.model, self.ranks = checkpoint.network, checkpoint.ranks
        self.spec, self.kv_dtype = spec, checkpoint.kv_dtype
        self.shapes: tuple[KVShape, ...] = kv_shapes(model.config, ranks.size)

    @abstractmethod
    def forwards(self, plan: Plan) -> tuple[Plan, ...]:
        """Split `plan`, which has spans, into forward passes in order; only the last one samples."""

    @abstractmethod
    def body(self, batch: Batch, memory: Memory) -> Tensor | None:
        """Store keys and values; return what `head` needs of sampled rows, None without any. It needs no token masks."""

    def head(self, batch: Batch, rows: Tensor) -> Answer:
        """Return logits or samples of sampled rows, given what `body` returned for them."""
        del batch
        return rows

    def forward(self, batch: Batch, memory: Memory) -> Answer | None:
        """Store keys and values; return logits or samples of sampled rows, None without any."""
        rows = self.body(batch, memory)
        return None if rows is None else self.head(batch, rows)

    def sample(self, batch: Batch, answer: Answer) -> Drawn:
        """Return tokens, probabilities and the requested statistics."""
        if isinstance(answer, Drawn):
            return answer
        raw = answer
        if batch.process is not None:
            answer = batch.process(answer.to(torch.float32, copy=True), self.spec)
        return self._measured(sample(answer, batch.settings, **self.allowed(batch)), raw, answer, batch)

    def _measured(self, drawn: Drawn, raw: Tensor, logits: Tensor, batch: Batch) -> Drawn:
        """Return the samples with the statistic `policy`, if it is requested; `raw` are the logits before processors."""
        if "policy" not in batch.sampler.statistics:
            return drawn
        return replace(drawn, policy=policy_of(drawn, raw, logits, batch.settings, **self.allowed(batch)))

    @contextmanager
    def only_first_layers(self) -> Generator[None]:
        """Make `forward` run only the first layers of each stack inside the context, enough to launch each of its kernels.

        Its results, and the keys and values that it stores, are then meaningless.
        """
        try:
            for module, _, first in self._stacks:
                module.layers = first
            yield
        finally:
            for module, layers, _ in self._stacks:
                module.layers = layers

    @cached_property
    def _stacks(self) -> list[tuple[nn.Module, nn.ModuleList, nn.ModuleList]]:
        """The stacks of layers, each with as few of its first layers as include every kind of layer in the stack.

        Layers of the same kind differ only in the values of their tensors, so they launch the same kernels.
        """
        stacks: list[tuple[nn.Module, nn.ModuleList, nn.ModuleList]] = []
        for module in self.model.modules():
            layers = getattr(module, "layers", None)
            if isinstance(layers, nn.ModuleList):
                kinds = [_kind(layer) for layer in layers]
                needed = max((kinds.index(kind) + 1 for kind in set(kinds)), default=0)
                stacks.append((module, layers, layers[:needed]))
        return stacks

    def allowed(self, batch: Batch) -> Json:
        """Return the other arguments of `sample`: the ids that may be sampled, and the statistics to report."""
        size, mask_id = self.spec.vocab_size, self.spec.mask_id
        if batch.sampler.all_ids:
            size, mask_id = embedding_of(self.model).num_embeddings, None
        return {"vocab_size": size, "mask_id": mask_id, "sampler": batch.sampler}

    def carried_size(self, slots: int) -> tuple[int, int, int]:
        """Return the sizes of `Memory.carried` for this number of carry slots."""
        del slots
        return 0, 0, 0

    def memory(self, num_pages: int, page_size: int, slots: int) -> Memory:
        """Return zeroed memory. Raises torch.OutOfMemoryError with the numbers if too large."""
        device, kv_dtype = self.model.device, self.kv_dtype
        positions = num_pages * page_size + 1  # rows that are not stored write to the last position

        pages = [(positions, shape.kv_heads, shape.head_dim) for shape in self.shapes]
        try:
            keys, values = ([zeros(size, dtype=kv_dtype, device=device) for size in pages] for _ in range(2))
            carried = zeros(self.carried_size(slots if num_pages else 0), dtype=self.model.dtype, device=device)
            return Memory(tuple(keys), tuple(values), carried)
        except (RuntimeError, MemoryError) as error:
            needed = in_gib(positions * kv_bytes_per_token(self.shapes, kv_dtype))
            raise torch.OutOfMemoryError(
                f"num_pages={num_pages} of page_size={page_size} take {needed}, more than {device} has left: lower num_pages, "
                f"or let it be -1 for as many as fit ({error})"
            ) from error

    def _context(self, batch: Batch, memory: Memory) -> PagedContext:
        return PagedContext(memory.key_pages, memory.value_pages, batch.slot_mapping, batch.layouts, self.watch)


class PlainNetwork(PagedNetwork):
    """A body and a head. In 16 bits, a kernel samples from hidden states without logits."""

    def __init__(self, checkpoint: Checkpoint, spec: Spec) -> None:
        super().__init__(checkpoint, spec)
        model, ranks = self.model, self.ranks
        self._body, self._head = model.base_model, head_of(model)
        fused = has_kernels(model.device) and model.dtype.itemsize == 2
        self._linear = self._head if fused and isinstance(self._head, nn.Linear) else None
        self._gates = shared_gates(model)
        self.gated = self._gates is not None
        self._share = Share(vocabulary_shard(model, ranks), ranks.exchange) if ranks.several else None

    def forwards(self, plan: Plan) -> tuple[Plan, ...]:
        """Return the plan itself."""
        return (plan,)

    def body(self, batch: Batch, memory: Memory) -> Float[Tensor, "w hidden"] | None:
        """Store keys and values; return hidden states of sampled rows, None without any."""
        if self._gates is not None:
            self._gates.rows = batch.gates
        hidden = self._body(
            **self._inputs(batch),
            position_ids=batch.positions,
            attention_mask=NO_MASK,
            use_cache=False,
            paged=self._context(batch, memory),
        ).last_hidden_state
        if self._gates is not None:
            self._gates.rows = None  # other users of the model's modules feed no drafts
        return hidden[0].index_select(0, batch.sampled_rows) if batch.sampled_rows.numel() else None

    def head(self, batch: Batch, rows: Float[Tensor, "w hidden"]) -> Answer:
        """Return logits or samples of the hidden states of sampled rows."""
        if self._linear is None:
            return self._head(rows)
        if batch.process is not None:
            return logits_of(rows, self._linear.weight, self._linear.bias)
        drawn = head_and_sample(
            rows,
            self._linear.weight,
            batch.settings,
            **self.allowed(batch),
            bias=self._linear.bias,
            filled=batch.filled,
            share=self._share,
        )
        if "policy" not in batch.sampler.statistics:
            return drawn
        logits = logits_of(rows, self._linear.weight, self._linear.bias)  # once more, so that the samples stay the same
        logits = logits if self._share is None else gather_columns(logits, self._share)
        return self._measured(drawn, logits, logits, batch)

    def sample(self, batch: Batch, answer: Answer) -> Drawn:
        """Return tokens, probabilities and statistics. A rank has the logits of its shard of the ids."""
        if self._share is not None and not isinstance(answer, Drawn):
            answer = gather_columns(answer, self._share)
        return super().sample(batch, answer)

    def _inputs(self, batch: Batch) -> dict[str, Tensor]:
        """Return the rows as ids, or as embeddings if some rows are blends."""
        if batch.soft is None:
            return {"input_ids": batch.tokens}
        mask_id = self.spec.mask_id
        assert mask_id is not None, "soft rows blend with the mask"
        embedding, soft = embedding_of(self.model), batch.soft
        table = embedding.weight
        if isinstance(embedding, VocabRows):  # gather the blended rows from all ranks
            count = soft.ids.numel()
            last = torch.full((1,), mask_id, dtype=torch.int64, device=table.device)
            table = embedding.rows(torch.cat((soft.ids.flatten(), last)))
            soft = replace(soft, ids=torch.arange(count, device=table.device).view_as(soft.ids))
            mask_id = count
        return {"inputs_embeds": merge_embeddings(embedding(batch.tokens[0]), table, mask_id, soft)[None]}


class CanvasNetwork(PagedNetwork):
    """A network that encodes final tokens, predicting nothing, and denoises whole canvases."""

    def __init__(self, checkpoint: Checkpoint, spec: Spec) -> None:
        super().__init__(checkpoint, spec)
        model = self.model
        text: Any = model.config.get_text_config()
        if text.use_bidirectional_attention == "all":
            raise ValueError("use_bidirectional_attention='all' is not supported: final tokens are encoded causally")
        self._network: Any = model
        self._decoder: Any = self._network.model.decoder
        self._cache = {cache_argument(model): EmptyCache(self.shapes, model.dtype, model.device)}
        self.canvas_length = self._network.config.canvas_length or 0
        self._hidden_size: int = text.hidden_size
        self._cap = text.final_logit_softcapping

    def carried_size(self, slots: int) -> tuple[int, int, int]:
        """Return the sizes of `Memory.carried`: place 0 and two places for each carry slot."""
        return 1 + 2 * slots, self.canvas_length, self._hidden_size

    def forwards(self, plan: Plan) -> tuple[Plan, ...]:
        """Split the plan into its encoded spans and its denoised spans, in this order."""
        modes = [tuple([span for span in plan.spans if span.rows.mode == mode]) for mode in ("encode", "denoise")]
        return tuple([replace(plan, spans=spans) for spans in modes if spans])

    def allowed(self, batch: Batch) -> Json:
        """Return the other arguments of `sample`, with the cap that it applies to the logits."""
        return super().allowed(replace(batch, sampler=replace(batch.sampler, cap=self._cap)))

    def body(self, batch: Batch, memory: Memory) -> Float[Tensor, "w vocab"] | None:
        """Encode final tokens and return None, or store the carried state of canvases and return their uncapped logits."""
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
        signal = held.flatten(0, 1)[None]
        with self._decoder.self_conditioning.register_forward_pre_hook(lambda _, inputs: (inputs[0], signal)):
            hidden = self._network.model(
                decoder_input_ids=batch.tokens,
                decoder_position_ids=batch.positions,
                decoder_attention_mask=NO_MASKS,
                **self._cache,
                paged=paged,
            ).last_hidden_state
        logits = self._network.lm_head(hidden[0])
        temperatures = batch.settings.temperatures
        assert temperatures is not None, "canvases are sampled at a temperature"
        memory.carried.index_copy_(0, carry.left, self._signal(logits, temperatures).view_as(held))
        return logits

    def _signal(self, logits: Float[Tensor, "n vocab"], temperatures: Float32[Tensor, " n"]) -> Float[Tensor, "n hidden"]:
        """Return the next self-conditioning signal: mean embeddings, rounded as by transformers."""
        embedding = self._decoder.embed_tokens
        table, scale = embedding.weight, embedding.embed_scale.to(embedding.weight.dtype)
        shares = token_shares(logits, temperatures, cap=self._cap)
        if isinstance(embedding, VocabRows):  # each rank weighs its rows of whole distributions
            shares = shares[:, embedding.cut.first : embedding.cut.first + embedding.cut.count]
        return self.ranks.add_up(shares @ table) * scale


def paged(checkpoint: Checkpoint, spec: Spec) -> PagedNetwork:
    """Return the network of a checkpoint, or a rank's shard of it, with its keys and values in pages."""
    kind = CanvasNetwork if isinstance(checkpoint.network, DiffusionGemmaForBlockDiffusion) else PlainNetwork
    return kind(checkpoint, spec)
