"""The interface of networks over pages."""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel

from dlstep_kernels import Drawn, sample

from ...core import Plan, Spec
from ...distributed.ranks import ALONE, Ranks
from ..attention import PagedContext
from ..shapes import KVShape, embedding_of, in_gib, kv_bytes_per_token, kv_shapes
from .batch import Batch, Memory
from .first_layers import FirstLayers

Answer = Float[Tensor, "w vocab"] | Drawn


class PagedNetwork(ABC):
    """A transformers model over KV cache pages. It owns the weights, and `Memory` the pages."""

    canvas_length = 0  # rows of each span of a sampling forward pass; 0: any number
    gated = False  # whether it has an adapter that applies only to the rows of drafts
    draws_itself = False  # whether `forward` returns samples (padding is free) instead of logits

    def __init__(self, model: PreTrainedModel, spec: Spec, ranks: Ranks = ALONE) -> None:
        self.model, self.spec, self.ranks = model, spec, ranks
        self.shapes: tuple[KVShape, ...] = kv_shapes(model.config, ranks.size)

    @abstractmethod
    def forwards(self, plan: Plan) -> tuple[Plan, ...]:
        """Split `plan`, which has spans, into forward passes in order; only the last one samples.

        Raises DlstepError for a span that the network does not support.
        """

    @abstractmethod
    def forward(self, batch: Batch, memory: Memory) -> Answer | None:
        """Store keys and values; return logits or samples of sampled rows, None without any."""

    def sample(self, batch: Batch, answer: Answer) -> Drawn:
        """Return tokens, probabilities and the requested statistics."""
        return answer if isinstance(answer, Drawn) else sample(answer, batch.settings, **self.allowed(batch))

    def only_first_layers(self) -> AbstractContextManager[None]:
        """Return a context in which `forward` launches each of its kernels, but skips most layers.

        Its answers are then meaningless, and so is what it stores.
        """
        return self._first_layers.alone()

    @cached_property
    def _first_layers(self) -> FirstLayers:
        return FirstLayers(self.model)

    def allowed(self, batch: Batch) -> dict[str, Any]:
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
        device, dtype = self.model.device, self.model.dtype
        positions = num_pages * page_size + 1  # rows that are not stored write to the last position

        pages = [(positions, shape.kv_heads, shape.head_dim) for shape in self.shapes]
        sizes = [*pages, *pages, self.carried_size(slots)]  # keys, values
        try:
            *tensors, carried = [torch.zeros(size, dtype=dtype, device=device) for size in sizes]
            return Memory(tuple(tensors[: len(pages)]), tuple(tensors[len(pages) :]), carried)
        except RuntimeError as error:  # on a CPU, running out of memory is a plain RuntimeError
            needed = in_gib(positions * kv_bytes_per_token(self.shapes, dtype))
            raise torch.OutOfMemoryError(
                f"num_pages={num_pages} of page_size={page_size} take {needed}, more than {device} has left: lower num_pages, "
                f"or let it be -1 for as many as fit ({error})"
            ) from error

    def _context(self, batch: Batch, memory: Memory) -> PagedContext:
        return PagedContext(memory.key_pages, memory.value_pages, batch.slot_mapping, batch.layouts)
