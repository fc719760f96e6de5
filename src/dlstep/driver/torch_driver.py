"""Runs plans on a network: owns the pages of keys and values, follows changes of ownership, answers with samples."""

import torch
from jaxtyping import Float32
from torch import Tensor, nn

from dlstep_kernels import merge_embeddings, sample

from ..core import START_LINE, Config, LineMismatch, Plan, Samples, next_line
from ..models import Checkpoint, PagedContext
from ..models.attention import NO_MASKS
from ..models.families import embedding_of, head_of, kv_shape
from .lowering import Batch, Target, lower, pack, unpack
from .tables import PageTables

_BROKEN_LINE = -1  # no state is on it


class TorchDriver:
    """A device for the states of one `Config`; `run` is all that the engine needs.

    The parts of `run` (`follow`, `lower`, `forward`, `sample`, `unpack`) are public so that their costs can be
    measured. The network is used where it is; with `device` it is moved there. Raises ValueError if the configuration
    does not fit the network.
    """

    def __init__(self, checkpoint: Checkpoint, config: Config, *, device: str | None = None) -> None:
        network = checkpoint.network
        if device is not None:
            nn.Module.to(network, torch.device(device))
        shape = kv_shape(network.config)
        embedded = embedding_of(network).num_embeddings
        spec = config.spec
        if spec.vocab_size > embedded or not (spec.mask_id is None or 0 <= spec.mask_id < embedded):
            raise ValueError(
                f"Config.spec has {spec.vocab_size} ids and mask id {spec.mask_id}, the network {checkpoint.name} "
                f"embeds {embedded}: build the Config from checkpoint.spec"
            )
        self.config = config
        self.network = network
        self._body, self._head = network.base_model, head_of(network)
        self.line = START_LINE
        self._last: Plan | None = None
        self._tables = PageTables(max_num_reqs=config.max_num_reqs, width=config.max_model_len // config.page_size + 2)
        windows = tuple(dict.fromkeys(shape.windows))
        self._target = Target(config.page_size, spec.head_shift, windows, network.device, network.dtype)
        # One slot more than the pages have: rows that are not stored end there.
        size = (config.num_pages * config.page_size + 1, shape.kv_heads, shape.head_dim)
        layers = range(len(shape.windows))
        self._key_pages = tuple(torch.zeros(size, dtype=network.dtype, device=network.device) for _ in layers)
        self._value_pages = tuple(torch.zeros(size, dtype=network.dtype, device=network.device) for _ in layers)

    def run(self, plan: Plan) -> Samples:
        """The samples of `plan`.

        A plan may be run again, with the same answer. Raises LineMismatch for one that relies on another history than
        this driver's.
        """
        self.follow(plan)
        batch = self.lower(plan)
        packed = None if batch is None else self.sample(batch, self.forward(batch))
        samples = self.unpack(plan, packed)
        self.line = next_line(samples)
        return samples

    def follow(self, plan: Plan) -> None:
        """Take over the ownership of pages as `plan` has it, once."""
        if plan.line == START_LINE:
            self._tables.clear()
        elif plan is self._last or plan == self._last:
            return
        elif plan.line != self.line:
            raise LineMismatch(
                f"step {plan.step} continues line {plan.line}, this driver is on line {self.line}: rebuild(state) makes a "
                "state that any driver accepts"
            )
        # Should this forward fail, only the same plan may follow, or one that starts a line.
        self.line, self._last = _BROKEN_LINE, None
        self._tables.apply(plan)
        self._last = plan

    def lower(self, plan: Plan) -> Batch | None:
        """The tensors of `plan`; None if it has no spans."""
        return lower(plan, self._tables, self._target) if plan.spans else None

    @torch.inference_mode()
    def forward(self, batch: Batch) -> Float32[Tensor, "w vocab"] | None:
        """Logits of the wanted positions, and the rows' keys and values in the pages; None if none is wanted."""
        context = PagedContext(self._key_pages, self._value_pages, batch.slots, batch.layouts)
        hidden = self._body(
            **self._inputs(batch),
            position_ids=batch.positions,
            attention_mask=NO_MASKS,
            use_cache=False,
            paged=context,
        ).last_hidden_state
        if not batch.wanted.numel():
            return None
        return self._head(hidden[0].index_select(0, batch.wanted)).float()

    def _inputs(self, batch: Batch) -> dict[str, Tensor]:
        """The rows as ids, or as embeddings if some are blends."""
        if batch.soft is None:
            return {"input_ids": batch.tokens}
        mask_id = self.config.spec.mask_id
        assert mask_id is not None, "soft rows blend with the mask"
        embedding = embedding_of(self.network)
        return {"inputs_embeds": merge_embeddings(embedding(batch.tokens[0]), embedding.weight, mask_id, batch.soft)[None]}

    @torch.inference_mode()
    def sample(self, batch: Batch, logits: Float32[Tensor, "w vocab"] | None) -> Float32[Tensor, "k w"] | None:
        """Tokens, probabilities and the statistics asked for (entropy, then margin), as one tensor on the host."""
        if logits is None:
            return None
        spec = self.config.spec
        drawn = sample(logits, batch.settings, vocab_size=spec.vocab_size, mask_id=spec.mask_id, reading=batch.reading)
        return pack(drawn).cpu()

    def unpack(self, plan: Plan, packed: Float32[Tensor, "k w"] | None) -> Samples:
        """The samples that `packed` holds, span by span."""
        return unpack(plan, packed)
