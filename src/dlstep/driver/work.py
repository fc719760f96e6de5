"""A plan as tensors: one batch for each mode of the network, and which slots canvases carry something in."""

from dataclasses import dataclass, replace

from ..core import DlstepError, Plan
from .lowering import Batch, Target, lower
from .tables import PageTables


@dataclass(frozen=True, slots=True)
class Work:
    """The batches of a forward: `encode` first, then `denoise`. At most one of the two wants something."""

    encode: Batch | None
    denoise: Batch | None = None

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
        for arrival in (*plan.releases, *plan.preemptions):
            self.slots.pop(arrival, None)
        for admission in plan.admissions:
            if admission.slot is not None:
                self.slots[admission.arrival] = admission.slot


def lower_modes(plan: Plan, tables: PageTables, slots: CarrySlots, target: Target, canvas_length: int) -> Work:
    """The tensors of `plan`, which must have spans; raises what `by_mode` raises."""
    encode, denoise = by_mode(plan, canvas_length)
    return Work(
        None if encode is None else lower(encode, tables, target),
        None if denoise is None else lower(denoise, tables, target, slots.slots),
    )


def by_mode(plan: Plan, canvas_length: int) -> tuple[Plan | None, Plan | None]:
    """The spans that are encoded and those that are denoised; `canvas_length` 0 is a network that denoises nothing.

    Raises DlstepError for spans that the network has no mode for.
    """
    if not canvas_length:
        _refuse_canvases(plan)
        return plan, None
    _check_canvases(plan, canvas_length)
    encoding = tuple(span for span in plan.spans if span.mode == "encode")
    denoising = tuple(span for span in plan.spans if span.mode == "denoise")
    return replace(plan, spans=encoding) if encoding else None, replace(plan, spans=denoising) if denoising else None


def _refuse_canvases(plan: Plan) -> None:
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
