"""Networks that read masks and final tokens alike: one kind of forward, whatever it feeds."""

from torch import Tensor, nn
from transformers import PreTrainedModel

from dlstep_kernels import has_kernels, head_and_sample, merge_embeddings

from ...core import DlstepError, Plan, Spec
from ..attention import NO_MASK
from ..shapes import embedding_of, head_of
from .batch import Batch, Memory
from .network import Answer, PagedNetwork


class PlainNetwork(PagedNetwork):
    """A body and a head. Where a kernel can, in 16 bits, ids are sampled from hidden states; logits are never written."""

    def __init__(self, model: PreTrainedModel, spec: Spec) -> None:
        super().__init__(model, spec)
        self._body, self._head = model.base_model, head_of(model)
        fused = has_kernels(model.device) and model.dtype.itemsize == 2
        self._linear = self._head if fused and isinstance(self._head, nn.Linear) else None
        self.draws_itself = self._linear is not None

    def forwards(self, plan: Plan) -> tuple[Plan, ...]:
        """The plan itself."""
        for span in plan.spans:
            if span.mode == "denoise" or span.carry != "none":
                raise DlstepError(f"step {plan.step}, request {span.id}: the network cannot denoise a canvas")
        return (plan,)

    def forward(self, batch: Batch, memory: Memory) -> Answer | None:
        """Logits or samples of the wanted rows."""
        hidden = self._body(
            **self._inputs(batch),
            position_ids=batch.positions,
            attention_mask=NO_MASK,
            use_cache=False,
            paged=self._context(batch, memory),
        ).last_hidden_state
        if not batch.wanted.numel():
            return None
        wanted = hidden[0].index_select(0, batch.wanted)
        if self._linear is None:
            return self._head(wanted)
        return head_and_sample(
            wanted,
            self._linear.weight,
            batch.settings,
            vocab_size=self.spec.vocab_size,
            mask_id=self.spec.mask_id,
            sampler=batch.sampler,
            bias=self._linear.bias,
            filled=batch.filled,
        )

    def _inputs(self, batch: Batch) -> dict[str, Tensor]:
        """The rows as ids, or as embeddings if some are blends."""
        if batch.soft is None:
            return {"input_ids": batch.tokens}
        mask_id = self.spec.mask_id
        assert mask_id is not None, "soft rows blend with the mask"
        embedding = embedding_of(self.model)
        return {"inputs_embeds": merge_embeddings(embedding(batch.tokens[0]), embedding.weight, mask_id, batch.soft)[None]}
