"""Networks that process masks and final tokens alike, in one kind of forward pass."""

from dataclasses import replace

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from dlstep_kernels import Drawn, has_kernels, head_and_sample, merge_embeddings
from dlstep_kernels.vocabulary import Share, sample_cut

from ...core import DlstepError, Plan, Spec
from ...distributed.ranks import ALONE, Ranks
from ..gated import gates_of
from ..shapes import embedding_of, head_of
from ..sharding import VocabRows, ids_of
from ..transformers_internals import NO_MASK
from .batch import Batch, Memory
from .network import Answer, PagedNetwork


class PlainNetwork(PagedNetwork):
    """A body and a head. In 16 bits, a kernel samples from hidden states without logits."""

    def __init__(self, model: PreTrainedModel, spec: Spec, ranks: Ranks = ALONE) -> None:
        super().__init__(model, spec, ranks)
        self._body, self._head = model.base_model, head_of(model)
        fused = has_kernels(model.device) and model.dtype.itemsize == 2
        self._linear = self._head if fused and isinstance(self._head, nn.Linear) else None
        self.draws_itself = self._linear is not None
        self._gates = gates_of(model)
        self.gated = self._gates is not None
        self._share = Share(ids_of(model, ranks), ranks.exchange) if ranks.several else None

    def forwards(self, plan: Plan) -> tuple[Plan, ...]:
        """Return the plan itself. Raises DlstepError for spans of a canvas."""
        for span in plan.spans:
            if span.mode == "denoise" or span.carry != "none":
                raise DlstepError(f"step {plan.step}, request {span.id}: the network cannot denoise a canvas")
        return (plan,)

    def forward(self, batch: Batch, memory: Memory) -> Answer | None:
        """Store keys and values; return logits or samples of sampled rows, None without any."""
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
        if not batch.sampled_rows.numel():
            return None
        rows = hidden[0].index_select(0, batch.sampled_rows)
        if self._linear is None:
            return self._head(rows)
        return head_and_sample(
            rows,
            self._linear.weight,
            batch.settings,
            **self.allowed(batch),
            bias=self._linear.bias,
            filled=batch.filled,
            share=self._share,
        )

    def sample(self, batch: Batch, answer: Answer) -> Drawn:
        """Return tokens, probabilities and statistics. A rank has the logits of its shard of the ids."""
        if self._share is None or isinstance(answer, Drawn):
            return super().sample(batch, answer)
        return sample_cut(answer, batch.settings, self._share.cut, self._share.exchange, **self.allowed(batch))

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
