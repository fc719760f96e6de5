"""Block diffusion for causal networks: a block attends to itself while it is decoded, and is then stored causally.

For networks trained to decode both in blocks and autoregressively, with the same weights. The first
token of a block is predicted by the row before it, in the forward pass that stores the previous
block. The other passes feed the whole block, whose positions attend to one another, and a rule
unmasks positions; the keys and values of these passes are not stored. Source: the published code of
NVIDIA's Nemotron-Labs-Diffusion.
"""

from dataclasses import dataclass, replace
from typing import Annotated, final

from annotated_types import Gt

from ..core import (
    Block,
    Grid,
    Request,
    Rule,
    SampleSpec,
    SequenceState,
    Span,
    SpanSamples,
    Spec,
    Strategy,
    planned_pass,
    sampled_by,
    span_of,
)
from ..core.filtering import passes_left, passes_to_come
from ..core.sequence import masks_of
from ..rules._shares import in_parts
from ..rules.threshold import Threshold
from ._blocks import decided_alone, opened, unfit


@final
@dataclass(frozen=True, slots=True)
class CausalBlocks(Strategy):
    """Blocks of `block_size` positions after the prompt, one at a time: a first token, then those that a rule unmasks.

    All positions before the block are final. The window is the block's first position until that
    has a token, and then the block's other positions.
    """

    holds_pins = True
    takes_constraints = True
    block_size: Annotated[int, Gt(0)] = 32
    """Positions per block; 1 is autoregressive decoding."""
    rule: Rule = Threshold(inclusive=True)
    """The rule that selects positions to unmask after a forward pass."""

    @property
    def sample_spec(self) -> SampleSpec:
        """The statistics that the rule needs, with untempered probabilities; ties go to the lowest id.

        Rules that draw from the most probable ids compute from the margin which of these ids the filters keep.
        """
        spec = self.rule.sample_spec
        statistics = spec.statistics | {"margin"} if spec.best else spec.statistics
        return replace(spec, statistics=statistics, ties="lowest", tempered=False)

    def incompatibility(self, spec: Spec) -> str | None:
        """Return why the rule or the model does not fit; None if both do."""
        if spec.head_shift:
            return "its head is shifted in all rows; the rows of masks must predict their own positions"
        return unfit(self.rule, spec)

    def grid(self, request: Request) -> Grid:
        """Return groups of one position: final positions attend causally."""
        return Grid(0, 1)

    def atom(self, request: Request) -> int:
        """Return the size of a block."""
        return self.block_size

    def init(self, sequence: SequenceState, spec: Spec) -> SequenceState:
        """Open the first position after the prompt; the prompt is final."""
        final = len(sequence.request.prompt)
        return self._advanced(sequence, opened(sequence, final, 1, spec), final, spec)

    def schedule(self, sequence: SequenceState, spec: Spec) -> Span:
        """Return a span that samples a block's first position, or that feeds the whole block and samples for the rule."""
        (block,), final = sequence.window, sequence.final
        request, number = sequence.request, sequence.steps - block.opened
        if block.start == final:
            # The span has no rows: the core puts the row before it, which predicts its position, into the pass.
            sampled = (final,)
            masks = masks_of(sequence, sampled)
            return span_of(request, final, (), request.grid, sampled, (number,), masks=masks, shift=1)
        sampled = sampled_by(self.rule, planned_pass(sequence, block))
        tokens = sequence.tokens(final, block.end)
        # `joins` is False because rows of one group attend to one another, but final rows must attend causally.
        return span_of(
            request,
            final,
            tokens,
            Grid(final, len(tokens)),
            sampled,
            (number,) * len(sampled),
            joins=False,
            masks=masks_of(sequence, sampled),
            shift=0,
        )

    def commit(self, sequence: SequenceState, span: Span, rows: SpanSamples, spec: Spec) -> SequenceState:
        """Set the block's first token, or apply the rule. A full block becomes final, and the next one opens."""
        (block,), final = sequence.window, sequence.final
        if block.start == final:
            block = block.unmask_rows((0,), rows.tokens, rows.probabilities)
        else:
            block = decided_alone(self.rule, sequence, block, span, rows, spec)
        return self._advanced(sequence, block, final, spec)

    def measure(self, sequence: SequenceState) -> int:
        """Return an upper bound on the passes for the open block and for the blocks after it."""
        limit, final, size = sequence.request.limit, sequence.final, self.block_size
        if not sequence.window:
            return 0
        (block,) = sequence.window
        stop = max(block.end, min(final + size, limit))  # a fork may lower the size below that of the open block
        # Each later block takes one pass for its first token, and those of the rule for the others.
        to_come = self._most(stop - block.end) + in_parts(limit - stop, size, lambda count: 1 + self._most(count - 1))
        of_block = 1
        if block.start != final:
            scheduled = max(0, self.rule.measure(planned_pass(sequence, block)))
            of_block = passes_left(sequence, block, scheduled, remasks=self.rule.remasks)
        return of_block + passes_to_come(sequence, to_come, limit - block.end)

    def _most(self, count: int) -> int:
        """Return an upper bound on the rule's passes for `count` positions of a block; 0 for none."""
        return self.rule.bound(count) if count else 0

    def _advanced(self, sequence: SequenceState, block: Block, final: int, spec: Spec) -> SequenceState:
        """Return the sequence whose window is `block`, or the first part after it that is not complete.

        The parts of a block are its first position and its other positions. `final` is the start of
        the block to which `block` belongs.
        """
        past, limit = sequence.past, sequence.request.limit
        while True:  # pinned tokens may complete several parts at once
            if block.masked:
                settled = block.first if self.rule.remasks else block.masked[0]
                return sequence.with_window(past, (block,), final, settled)
            past, end = past.push_front(block.sealed()), block.end
            if end == limit:
                return sequence.with_window(past, (), final, end)
            stop = min(final + self.block_size, limit)
            # The block is complete, or longer than after a fork with a lower `block_size`: open the first position of the next.
            if end >= stop:
                final, stop = end, end + 1
            block = opened(sequence, end, stop - end, spec)


STRATEGY = CausalBlocks
