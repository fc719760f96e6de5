"""Block diffusion for causal networks: a block attends to itself while it is decoded, and is then stored causally.

For networks trained to decode both in blocks and autoregressively, with the same weights. The first
token of a block is predicted by the row before it, in the forward pass that stores the previous
block. The other passes feed the whole block, whose positions attend to one another, and a rule
unmasks positions; the keys and values of these passes are not stored. Source: the published code of
NVIDIA's Nemotron-Labs-Diffusion.
"""

from dataclasses import dataclass
from typing import final

from ..core import (
    ALONE,
    Block,
    Grid,
    PositiveInt,
    Progress,
    Rows,
    Rule,
    SequenceState,
    Span,
    SpanSamples,
    Spec,
    Wanted,
)
from ..core.filtering import passes_to_come
from ..rules._shares import in_parts
from ..rules.threshold import Threshold
from ._blocks import block_passes, decided_alone, opened, sampled_for
from ._verified import CausalByRule


@final
@dataclass(frozen=True, slots=True)
class CausalBlocks(CausalByRule):
    """Blocks of `block_size` positions after the prompt, one at a time: a first token, then those that a rule unmasks.

    All positions before the block are final. The window is the block's first position until that
    has a token, and then the block's other positions.
    """

    block_size: PositiveInt = 32
    """Positions per block; 1 is autoregressive decoding."""
    rule: Rule = Threshold(inclusive=True)
    """The rule that selects positions to unmask after a forward pass."""

    def init(self, sequence: SequenceState, spec: Spec) -> Progress:
        """Open the first position after the prompt; the prompt is final."""
        final = len(sequence.request.prompt)
        return self._progress(sequence, opened(sequence, final, 1, spec), final, spec)

    def schedule(self, sequence: SequenceState, spec: Spec) -> Span:
        """Return a span that samples a block's first position, or that feeds the whole block and samples for the rule."""
        (block,), final = sequence.progress.window, sequence.progress.final
        request, number = sequence.request, sequence.steps - block.opened
        if block.start == final:
            # The span has no rows. The core feeds the row before it, which predicts the sampled position.
            return Span(request.who, Rows(final, (), final, request.grid), Wanted((final,), (number,), shift=1))
        sampled = sampled_for(self.rule, sequence, block)
        tokens = sequence.tokens(final, block.end)
        # Rows of one group attend to one another, but final rows must attend causally, so they are not fed with this span.
        rows = Rows(final, tokens, block.end, Grid(final, len(tokens)))
        return Span(request.who, rows, Wanted(sampled, (number,) * len(sampled), shift=0), ALONE)

    def commit(self, sequence: SequenceState, span: Span, samples: SpanSamples, spec: Spec) -> Progress:
        """Set the block's first token, or apply the rule. A full block becomes final, and the next one opens."""
        (block,), final = sequence.progress.window, sequence.progress.final
        if block.start == final:
            block = block.unmask_rows((0,), samples.tokens, samples.probabilities)
        else:
            block = decided_alone(self.rule, sequence, block, span, samples, spec)
        return self._progress(sequence, block, final, spec)

    def measure(self, sequence: SequenceState) -> int:
        """Return an upper bound on the passes for the open block and for the blocks after it."""
        limit, final, size = sequence.request.limit, sequence.progress.final, self.block_size
        if not sequence.progress.window:
            return 0
        (block,) = sequence.progress.window
        stop = max(block.end, min(final + size, limit))  # a fork may lower the size below that of the open block
        # Each later block takes one pass for its first token, and those of the rule for the others.
        to_come = self._most(stop - block.end) + in_parts(limit - stop, size, lambda count: 1 + self._most(count - 1))
        of_block = 1 if block.start == final else max(0, block_passes(self.rule, sequence, block))
        return of_block + passes_to_come(sequence, to_come, limit - block.end)

    def _most(self, count: int) -> int:
        """Return an upper bound on the rule's passes for `count` positions of a block; 0 for none."""
        return self.rule.bound(count) if count else 0

    def _progress(self, sequence: SequenceState, block: Block, final: int, spec: Spec) -> Progress:
        """Return the progress whose window is `block`, or the first part after it that is not complete.

        The parts of a block are its first position and its other positions. `final` is the start of
        the block to which `block` belongs.
        """
        past, limit = sequence.progress.past, sequence.request.limit
        while True:  # pinned tokens may complete several parts at once
            if block.masked:
                settled = block.first if self.rule.remasks else block.masked[0]
                return Progress((block,), final, settled, past)
            past, end = past.push_front(block.sealed()), block.end
            if end == limit:
                return Progress((), final, end, past)
            stop = min(final + self.block_size, limit)
            # The block is complete, or a fork has lowered `block_size`: open the first position of the next block.
            if end >= stop:
                final, stop = end, end + 1
            block = opened(sequence, end, stop - end, spec)


STRATEGY = CausalBlocks
