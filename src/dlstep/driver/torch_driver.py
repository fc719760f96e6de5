"""Runs plans on a network: owns the pages of keys and values, follows changes of ownership, answers with samples."""

from collections import deque
from dataclasses import replace
from threading import Lock

import torch
from jaxtyping import Float, Float32
from torch import Tensor, nn
from transformers import DiffusionGemmaForBlockDiffusion

from dlstep_kernels import Drawn
from dlstep_kernels.choice import has_kernels, head_and_sample, merge_embeddings, sample

from ..core import Config, Plan, Samples
from ..models import Checkpoint, PagedContext
from ..models.attention import NO_MASK
from ..models.diffusion_gemma import CanvasNetwork
from ..models.shapes import KVShape, embedding_of, head_of, in_gib, kv_bytes_per_token, kv_shapes
from .graphs import Graphs, Sizes
from .history import Histories, History
from .lowering import Batch, Carry, Target, gather, lower, pack, unpack
from .profile import region
from .tables import PageTables
from .work import CarrySlots, Work, by_mode, lower_modes

Answer = Float[Tensor, "w vocab"] | Drawn


class TorchDriver:
    """A device for the states of one `Config`, and for others that differ in `num_pages`; threads may share it.

    States of `config.num_pages` pages have one history, those of other numbers `max_histories` more, in memory that is taken
    when they begin. The parts of `run` (`follow`, `lower`, `forward`, `sample`, `unpack`) are public so that their costs can be
    measured. The network is used where it is; with `device` it is moved there. On a CUDA device forwards that sample are
    padded to buckets and, unless `enforce_eager`, captured as graphs, in place of `lower`, `forward` and `sample`. Raises
    ValueError if the configuration does not fit the network, torch.OutOfMemoryError if pages do not fit the device.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        config: Config,
        *,
        device: str | None = None,
        enforce_eager: bool = False,
        max_histories: int = 8,
    ) -> None:
        network = checkpoint.network
        if device is not None:
            nn.Module.to(network, torch.device(device))
        shapes = kv_shapes(network.config)
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
        self._canvas = CanvasNetwork(network) if isinstance(network, DiffusionGemmaForBlockDiffusion) else None
        self._canvas_length = self._canvas.canvas_length if self._canvas else 0
        views = tuple(dict.fromkeys(shape.view for shape in shapes))
        self._shapes = shapes
        self._target = Target(config.page_size, spec.head_shift, views, network.device, network.dtype)
        kernels = has_kernels(network.device)
        # In 16 bits, ids are sampled from hidden states at once; logits are never written.
        self._fused = kernels and self._canvas is None and isinstance(self._head, nn.Linear) and network.dtype.itemsize == 2
        self._captures = not enforce_eager if kernels else None
        self._histories = Histories(self._new_history(config.num_pages), self._new_history, max_histories)
        self._now = self._histories.main
        self._lock = Lock()
        self._released: deque[int] = deque()

    def _new_history(self, num_pages: int) -> History:
        """A history without content. Raises torch.OutOfMemoryError with the numbers if there is no room for its pages."""
        config = replace(self.config, num_pages=num_pages)
        keys, values = _empty_pages(self._shapes, config, self.network.dtype, self.network.device)
        tables = PageTables(max_num_reqs=config.max_num_reqs, width=config.max_model_len // config.page_size + 2)
        graphs = None
        if self._captures is not None:
            sizes = Sizes(self._canvas_length, self._fused)
            graphs = Graphs(self._captured_step, self._target, sizes, captures=self._captures)
        return History(num_pages, keys, values, self._empty_carried(), tables, CarrySlots(), graphs)

    def _empty_carried(self) -> Float[Tensor, "places canvas hidden"]:
        """Self-conditioning buffers: the places that `Carry` names, two for each carry slot."""
        canvas = self._canvas
        size = (1 + 2 * self.config.max_num_reqs, canvas.canvas_length, canvas.hidden_size) if canvas else (0, 0, 0)
        return torch.zeros(size, dtype=self.network.dtype, device=self.network.device)

    @property
    def graph_count(self) -> int:
        """How many graphs are captured so far."""
        return sum(history.graphs.count for history in self._histories if history.graphs)

    @property
    def padding(self) -> int:
        """Rows beside those of requests that padded forwards computed so far."""
        return sum(history.graphs.padding for history in self._histories if history.graphs)

    @region("run")
    def run(self, plan: Plan) -> Samples:
        """The samples of `plan`.

        A plan may be run again, with the same answer. Raises LineMismatch for one that relies on a history that is not held
        here, DlstepError for one that begins a history for which there is no room.
        """
        with self._lock:
            self._forget_released()
            self.follow(plan)
            packed = self._replayed(plan)
            if packed is None and (work := self.lower(plan)) is not None:
                packed = self.sample(work, self.forward(work))
            samples = self.unpack(plan, packed)
            self._now.line = samples.line
            return samples

    def fork(self, line: int) -> bool:
        """Copy the history on `line`, so that two states can go on from it; False if there is none or no room."""
        with self._lock:
            return self._histories.fork(line)

    def release(self, line: int) -> None:
        """Forget the history on `line`, now or before the next forward: a finalizer may ask for it at any time."""
        self._released.append(line)
        if self._lock.acquire(blocking=False):
            try:
                self._forget_released()
            finally:
                self._lock.release()

    def _forget_released(self) -> None:
        while self._released:
            self._histories.release(self._released.popleft())

    @torch.inference_mode()
    def _replayed(self, plan: Plan) -> Float32[Tensor, "k w"] | None:
        """The answer of a padded, and perhaps captured, forward; None for a plan that is run in its own sizes."""
        graphs, tables, slots = self._now.graphs, self._now.tables, self._now.slots
        if graphs is None or not plan.spans:
            return None
        encode, denoise = by_mode(plan, self._canvas_length)
        sampled = denoise or (None if self._canvas else encode)
        if sampled is None:
            return None
        gathered = gather(sampled, tables, self._target, slots.slots)
        if not graphs.takes(gathered):
            return None
        if encode is not None and encode is not sampled:
            self._encode(lower(encode, tables, self._target))
        return graphs.run(gathered)

    def _captured_step(self, batch: Batch) -> Float32[Tensor, "k w"]:
        """A forward and the sampling of its wanted rows: the part that graphs capture."""
        answer = self._encode(batch) if batch.carry is None else self._denoise(batch, batch.carry)
        assert answer is not None, "only forwards that sample are captured"
        return pack(self._drawn(batch, answer))

    @region("follow")
    def follow(self, plan: Plan) -> None:
        """Turn to the history that `plan` belongs to, and take over its changes of ownership, once."""
        self._now = self._histories.place(plan)
        self._now.follow(plan)

    @region("lower")
    def lower(self, plan: Plan) -> Work | None:
        """The tensors of `plan`; None if it has no spans."""
        now = self._now
        return lower_modes(plan, now.tables, now.slots, self._target, self._canvas_length) if plan.spans else None

    @region("forward")
    @torch.inference_mode()
    def forward(self, work: Work) -> Answer | None:
        """Logits of the wanted positions, and the rows' keys and values in the pages; None if none is wanted.

        Where a kernel samples from hidden states, what it drew in place of logits.
        """
        answer = None
        if work.encode is not None:
            answer = self._encode(work.encode)
        if work.denoise is not None:
            assert work.denoise.carry is not None, "canvases carry something"
            answer = self._denoise(work.denoise, work.denoise.carry)
        return answer

    def _paged(self, batch: Batch) -> PagedContext:
        return PagedContext(self._now.key_pages, self._now.value_pages, batch.slots, batch.layouts)

    def _denoise(self, batch: Batch, carry: Carry) -> Float32[Tensor, "w vocab"]:
        """Logits of canvases, and what they carry to their next forward."""
        canvas, temperatures = self._canvas, batch.settings.temperatures
        assert canvas is not None and temperatures is not None, "canvases are sampled at a temperature"
        held = self._now.carried.index_select(0, carry.found).masked_fill(carry.fresh[:, None, None] != 0, 0.0)
        logits = canvas.denoise(batch.tokens, batch.positions, held.flatten(0, 1), self._paged(batch))
        self._now.carried.index_copy_(0, carry.left, canvas.signal(logits, temperatures).view_as(held))
        return logits

    def _encode(self, batch: Batch) -> Answer | None:
        """Logits or samples of the wanted rows of a network that reads its window like final tokens; None if only stored."""
        if self._canvas is not None:
            return self._canvas.encode(batch.tokens, batch.positions, self._paged(batch))
        hidden = self._body(
            **self._inputs(batch),
            position_ids=batch.positions,
            attention_mask=NO_MASK,
            use_cache=False,
            paged=self._paged(batch),
        ).last_hidden_state
        if not batch.wanted.numel():
            return None
        wanted = hidden[0].index_select(0, batch.wanted)
        if not self._fused:
            return self._head(wanted)
        spec, head = self.config.spec, self._head
        assert isinstance(head, nn.Linear)
        return head_and_sample(
            wanted,
            head.weight,
            batch.settings,
            vocab_size=spec.vocab_size,
            mask_id=spec.mask_id,
            reading=batch.reading,
            bias=head.bias,
            filled=batch.filled,
        )

    def _inputs(self, batch: Batch) -> dict[str, Tensor]:
        """The rows as ids, or as embeddings if some are blends."""
        if batch.soft is None:
            return {"input_ids": batch.tokens}
        mask_id = self.config.spec.mask_id
        assert mask_id is not None, "soft rows blend with the mask"
        embedding = embedding_of(self.network)
        return {"inputs_embeds": merge_embeddings(embedding(batch.tokens[0]), embedding.weight, mask_id, batch.soft)[None]}

    @region("sample")
    @torch.inference_mode()
    def sample(self, work: Work, answer: Answer | None) -> Float32[Tensor, "k w"] | None:
        """Tokens, probabilities and the statistics asked for (entropy, then margin), as one tensor on the host."""
        return None if answer is None else pack(self._drawn(work.sampled, answer)).cpu()

    def _drawn(self, batch: Batch, answer: Answer) -> Drawn:
        if isinstance(answer, Drawn):
            return answer
        spec = self.config.spec
        return sample(answer, batch.settings, vocab_size=spec.vocab_size, mask_id=spec.mask_id, reading=batch.reading)

    @region("unpack")
    def unpack(self, plan: Plan, packed: Float32[Tensor, "k w"] | None) -> Samples:
        """The samples that `packed` holds, span by span."""
        return unpack(plan, packed)


def _empty_pages(
    shapes: tuple[KVShape, ...], config: Config, dtype: torch.dtype, device: torch.device
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Pages of keys, and of values, for each layer. Raises torch.OutOfMemoryError with the numbers if they do not fit."""
    # One slot more than the pages have: rows that are not stored end there.
    slots = config.num_pages * config.page_size + 1

    def pages() -> tuple[Tensor, ...]:
        return tuple([torch.zeros((slots, each.kv_heads, each.head_dim), dtype=dtype, device=device) for each in shapes])

    try:
        return pages(), pages()
    except RuntimeError as error:  # on a CPU an OutOfMemoryError has no class of its own
        needed = in_gib(slots * kv_bytes_per_token(shapes, dtype))
        raise torch.OutOfMemoryError(
            f"num_pages={config.num_pages} of page_size={config.page_size} take {needed}, more than {device} has left: "
            f"lower num_pages, or let it be -1 for as many as fit ({error})"
        ) from error
