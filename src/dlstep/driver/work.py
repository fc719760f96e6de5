"""A plan as tensors: one batch for each mode of the network, and what canvases carry from forward to forward."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from ..core import DlstepError, Plan, Span
from .lowering import Batch, Target, lower
from .tables import PageTables


@dataclass(frozen=True, slots=True)
class Carry:
    """Where each canvas of a denoising batch finds and leaves what it carries.

    Every carry slot has two places, for even and for odd draws: what a draw leaves lies where the next one finds it and
    where it does not look itself, so that a plan can be run again. A `fresh` canvas finds nothing.
    """

    found: Int64[Tensor, " s"]
    left: Int64[Tensor, " s"]
    fresh: Bool[Tensor, " s"]


@dataclass(frozen=True, slots=True)
class Work:
    """What a forward runs: `encode` first, then `denoise` with its `carry`. At most one of the two wants something."""

    encode: Batch | None
    denoise: Batch | None = None
    carry: Carry | None = None

    @property
    def sampled(self) -> Batch:
        """The batch whose rows are sampled."""
        batch = self.denoise or self.encode
        assert batch is not None, "work without rows"
        return batch


class CarrySlots:
    """Which carry slot each live request holds. Follows plans; decides nothing."""

    def __init__(self) -> None:
        self.slots: dict[int, int] = {}

    def clear(self) -> None:
        """Forget every request."""
        self.slots = {}

    def apply(self, plan: Plan) -> None:
        """Ownership after `plan`."""
        for request_id in (*plan.releases, *plan.preemptions):
            self.slots.pop(request_id, None)
        for admission in plan.admissions:
            if admission.slot is not None:
                self.slots[admission.id] = admission.slot


def lower_modes(plan: Plan, tables: PageTables, slots: CarrySlots, target: Target, canvas_length: int) -> Work:
    """The tensors of `plan`, which must have spans; `canvas_length` 0 is a network that denoises nothing.

    Raises DlstepError for spans that the network has no mode for.
    """
    if not canvas_length:
        refuse_canvases(plan)
        return Work(lower(plan, tables, target))
    encoding = tuple(span for span in plan.spans if span.mode == "encode")
    denoising = tuple(span for span in plan.spans if span.mode == "denoise")
    _check_canvases(plan, canvas_length)
    return Work(
        lower(replace(plan, spans=encoding), tables, target) if encoding else None,
        lower(replace(plan, spans=denoising), tables, target) if denoising else None,
        _carry(denoising, slots, target.device) if denoising else None,
    )


def refuse_canvases(plan: Plan) -> None:
    """Raise DlstepError for spans that need a network which denoises."""
    for span in plan.spans:
        if span.mode == "denoise" or span.carry != "none":
            raise DlstepError(f"step {plan.step}, request {span.id}: the network cannot denoise a canvas")


def _check_canvases(plan: Plan, canvas_length: int) -> None:
    for span in plan.spans:
        if span.mode == "encode":
            if span.wanted or span.soft is not None:
                raise DlstepError(f"step {plan.step}, request {span.id}: the network encodes final tokens and predicts none")
        elif not len(span.tokens) == len(span.wanted) == canvas_length or span.carry == "none" or span.soft is not None:
            raise DlstepError(
                f"step {plan.step}, request {span.id}: the network denoises whole canvases of {canvas_length} positions, "
                f"carrying something over; the span feeds {len(span.tokens)}, wants {len(span.wanted)}, carry={span.carry!r}"
            )


def _carry(spans: tuple[Span, ...], slots: CarrySlots, device: torch.device) -> Carry:
    """The places of all canvases."""
    facts = [(2 * slots.slots[span.id], span.draws[0], span.carry == "fresh") for span in spans]
    places, draws, fresh = torch.tensor(facts).to(device).unbind(1)
    return Carry(places + (draws + 1) % 2, places + draws % 2, fresh.bool())
