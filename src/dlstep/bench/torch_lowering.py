"""The host side of the torch driver, for `bench.host`: everything but the network and its attention."""

from collections.abc import Iterable
from itertools import chain

import torch
from torch import Tensor

from ..core import Admission, Plan, Samples, State
from ..driver.lowering import LoweringTarget, Placed, gather, lower, unpack
from ..driver.masks import MaskTable
from ..driver.tables import CarrySlots, page_tables


class TorchLowering:
    """Lowers plans that continue from `state`, and unpacks their answers.

    Excludes the dense mask of plain torch attention, which kernels do not need.
    """

    def __init__(self, state: State) -> None:
        config = state.config
        self._tables = page_tables(config)
        self._slots = CarrySlots()
        running = [(sequence.request.seq_id, sequence.pages, sequence.storage.slot) for sequence in state.running]
        opened = Plan(state.step, state.cache_digest, (), admissions=tuple(Admission(*held) for held in running))
        self._tables.apply(opened)
        self._slots.apply(opened)
        device = torch.device("cpu")
        masks = MaskTable(config.spec.vocab_size, device)
        self._target = LoweringTarget(config.page_size, config.spec.head_shift, (), device, torch.float32, masks)
        self._placed: Placed | None = None

    def prepare(self, plan: Plan, samples: Samples) -> Tensor | None:
        """Apply ownership changes. Return the packed answer of a device, or None if nothing was sampled."""
        self._tables.apply(plan)
        self._slots.apply(plan)
        best, scored = plan.sample_spec.best, plan.sample_spec.scored
        parts: list[list[Iterable[float]]] = []
        for rows in samples.rows:
            part: list[Iterable[float]] = [rows.tokens, rows.probabilities, rows.entropies, rows.margins, rows.noise]
            part += [rows.scored_probabilities[place::scored] for place in range(scored)]
            part += [rows.best_ids[rank::best] for rank in range(best)]
            part += [rows.best_probabilities[rank::best] for rank in range(best)]
            parts.append(part)
        columns = [list(chain.from_iterable(column)) for column in zip(*parts, strict=True)]
        filled = [column for column in columns if column]
        return torch.tensor(filled, dtype=torch.float32) if filled else None

    def lower(self, plan: Plan) -> object:
        """Return the tensors of the plan. No page may have changed its owner since the first plan."""
        gathered = gather(plan, self._tables, self._target, self._slots.slots, self._placed)
        self._placed = gathered.placed
        return lower(gathered, self._target)

    def unpack(self, plan: Plan, packed: object) -> Samples:
        """Return the samples in `packed`, created by `prepare`."""
        assert packed is None or isinstance(packed, Tensor)
        return unpack(plan, packed)
