"""Plans ahead: the next forward pass, before the samples of the current one are known.

A device idles while it waits for the host; avoiding this made sdar-8b up to 1.08 times as fast. If a strategy unmasks by a
threshold alone, a device can apply the threshold itself, and start the next pass at once. The host then commits the samples
and schedules as usual. If the device has fed all rows of the host's plan, the plan uses their samples; otherwise, the plan
runs like any other.
"""

from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from .commit import Prepared
from .plan import Plan, Span
from .schedule import fit, scheduled_span

# With passes ahead, each finished block is stored in a separate pass. This pays if blocks average at least this many passes.
LEAST_PASSES = 8
# Up to this many rows, the next pass stores a finished block at no cost: one request of sdar-8b decodes 1.02 to 1.06 times as
# fast. With 128, four requests decode 0.92 times as fast, because none starts ahead while one ends a block (H200).
FREE_ROWS = 64


@dataclass(frozen=True, slots=True)
class PlanAhead:
    """A forward pass that a device can start before the host has the samples of the pass before it."""

    before: Plan
    """The plan that the device runs."""
    plan: Plan
    """The next plan. Positions that `before` samples still hold masks; the device unmasks the certain ones."""
    certain_from: tuple[float, ...]
    """`Strategy.certain_from` of each span of `plan`."""


@runtime_checkable
class AheadDriver(Protocol):
    """A driver that can start a plan before the samples of the plan before it are known."""

    def start_ahead(self, ahead: PlanAhead) -> bool:
        """Start `ahead.plan` if `ahead.before` was started last and the driver can; return whether it started.

        The next `start` uses these samples if all rows match.

        Args:
            ahead: The plan.
        """
        ...


def plan_ahead(prepared: Prepared) -> PlanAhead | None:
    """Return the pass that follows a plan if no request ends; None if it is unknown or not faster.

    This pass needs no new pages. If rows are few and a block probably ends now, judging by its request's tokens per pass,
    waiting is faster: the block can then be stored together with the next one.

    Args:
        prepared: The plan that the device runs, and its state.

    Raises:
        RequestFault: If the strategy of a request fails.
    """
    state, plan = prepared.state, prepared.plan
    config, spans, certain, surplus, joined = state.config, list[Span](), list[float](), 0, 0
    for sequence, index in prepared.running:
        request, least = sequence.request, sequence.request.strategy.certain_from
        # A sequence without a span may lack pages for its window; all others have them.
        if least is None or index < 0 or request.constraint is not None or request.params.processors:
            return None
        window = scheduled_span(state, sequence)
        span = fit(sequence, window, config.spec.head_shift, config.max_num_batched_tokens, joins=False)
        sampled = plan.spans[index].wanted.sampled
        # The row before the window is fed only while the first position is masked.
        if span is None or span.rows.query_only or (sampled and span.wanted.sampled != sampled):
            return None
        spans.append(span)
        certain.append(least)
        rows, masks = len(span.rows.tokens), len(sampled)
        tokens = sequence.progress.settled - len(request.prompt) + rows - masks
        surplus += LEAST_PASSES * tokens - sequence.steps * rows
        joined += rows if 0 < masks * (sequence.steps - 1) <= tokens else 0
    following = replace(plan, step=plan.step + 1, spans=tuple(spans), releases=(), preemptions=(), admissions=(), grants=())
    pays = spans and surplus <= 0 and not 0 < joined <= FREE_ROWS - following.num_rows
    fits = following.num_rows <= config.max_num_batched_tokens
    return PlanAhead(plan, following, tuple(certain)) if pays and fits else None
