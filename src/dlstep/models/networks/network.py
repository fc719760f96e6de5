"""The interface of networks over pages."""

from abc import ABC, abstractmethod
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

Answer = Float[Tensor, "w vocab"] | Drawn


class PagedNetwork(ABC):
    """A transformers model whose keys and values go through pages. It owns weights; what forwards leave is in `Memory`."""

    canvas_length = 0  # how many rows each span of a forward that samples has; 0: any number
    draws_itself = False  # whether wanted rows are answered with samples, which costs nothing for padding; or else with logits

    def __init__(self, model: PreTrainedModel, spec: Spec, ranks: Ranks = ALONE) -> None:
        self.model, self.spec, self.ranks = model, spec, ranks
        self.shapes: tuple[KVShape, ...] = kv_shapes(model.config, ranks.size)

    @abstractmethod
    def forwards(self, plan: Plan) -> tuple[Plan, ...]:
        """The forwards that `plan`, which has spans, takes one after the other; only the last one samples.

        Raises DlstepError for a span that the network has no forward for.
        """

    @abstractmethod
    def forward(self, batch: Batch, memory: Memory) -> Answer | None:
        """Logits of the wanted rows, or samples of them, and the rows' keys and values in the pages; None if none is wanted."""

    def sample(self, batch: Batch, answer: Answer) -> Drawn:
        """Tokens, probabilities and the statistics asked for."""
        return answer if isinstance(answer, Drawn) else sample(answer, batch.settings, **self.allowed(batch))

    def allowed(self, batch: Batch) -> dict[str, Any]:
        """Return the other arguments of `sample`: the ids that may be sampled, and the statistics to report."""
        size, mask_id = self.spec.vocab_size, self.spec.mask_id
        if batch.sampler.all_ids:
            size, mask_id = embedding_of(self.model).num_embeddings, None
        return {"vocab_size": size, "mask_id": mask_id, "sampler": batch.sampler}

    def carried_size(self, slots: int) -> tuple[int, int, int]:
        """Sizes of `Memory.carried` for so many carry slots."""
        del slots
        return 0, 0, 0

    def memory(self, num_pages: int, page_size: int, slots: int) -> Memory:
        """Empty memory of so many pages and carry slots. Raises torch.OutOfMemoryError with the numbers if there is no room."""
        device, dtype = self.model.device, self.model.dtype
        positions = num_pages * page_size + 1  # rows that are not stored end in the last one

        pages = [(positions, shape.kv_heads, shape.head_dim) for shape in self.shapes]
        sizes = [*pages, *pages, self.carried_size(slots)]  # keys, values
        try:
            *tensors, carried = [torch.zeros(size, dtype=dtype, device=device) for size in sizes]
            return Memory(tuple(tensors[: len(pages)]), tuple(tensors[len(pages) :]), carried)
        except RuntimeError as error:  # on a CPU an OutOfMemoryError has no class of its own
            needed = in_gib(positions * kv_bytes_per_token(self.shapes, dtype))
            raise torch.OutOfMemoryError(
                f"num_pages={num_pages} of page_size={page_size} take {needed}, more than {device} has left: lower num_pages, "
                f"or let it be -1 for as many as fit ({error})"
            ) from error

    def _context(self, batch: Batch, memory: Memory) -> PagedContext:
        return PagedContext(memory.key_pages, memory.value_pages, batch.slot_mapping, batch.layouts)
