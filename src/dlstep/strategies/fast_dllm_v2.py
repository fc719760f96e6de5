"""Fast-dLLM v2: one block at a time, sub-blocks strictly from left to right, cached within a block.

The model sees its block and all earlier ones; row p-1 predicts position p. Three spans decode a
block: the *seed* samples its first token from the previous block's last row, while that is stored
as final; a *whole* pass feeds the block and refreshes its KV; a *part* feeds only the current
sub-block and reads the others as last stored. Source: Wu et al., "Fast-dLLM v2: Efficient
Block-Diffusion LLM", 2025, arXiv 2509.26328.
"""

from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, final

from annotated_types import Gt

from ..core import (
    Block,
    Grid,
    PositiveInt,
    Probability,
    Progress,
    Refusal,
    Request,
    Rows,
    SequenceState,
    Span,
    SpanSamples,
    Spec,
    Strategy,
    Wanted,
)
from ..rules.threshold import Threshold
from ._blocks import Refreshed, decided_alone, opened, refusal_of_head

_above = lru_cache(Threshold)  # cached, so that equal values are validated once


@final
@dataclass(frozen=True, slots=True)
class FastDLLMV2(Strategy):
    """Sub-blocks of `block_size` positions; the model's diffusion block is `buffer_size` of them.

    The current sub-block unmasks every position with a probability above `accept_threshold`, or
    else the most probable one (of equal ones, the first). With `fdv2_use_block_cache`, a sub-block
    whose first token is unmasked is fed alone; without it, every pass feeds the diffusion block.
    """

    takes_constraints = True
    block_size: PositiveInt = 8
    """Positions of a sub-block."""
    buffer_size: Annotated[int, Gt(1)] = 4
    """Sub-blocks of a block."""
    accept_threshold: Probability = 0.9
    """Unmask a position when the probability of its token is above this."""
    fdv2_use_block_cache: bool = True
    """Decode a sub-block with the keys and values that earlier passes stored for the others."""

    @property
    def exact(self) -> bool:
        """Whether there is no block cache: with it, a sub-block reads keys and values of tokens that have changed since."""
        return not self.fdv2_use_block_cache

    def refusal(self, spec: Spec, request: Request) -> Refusal | None:
        """Return why a model without masks or with an unshifted head does not fit; else None."""
        return refusal_of_head(spec, 1)

    def grid(self, request: Request) -> Grid:
        """Return diffusion blocks from position 0 on."""
        return Grid(0, self.block_size * self.buffer_size)

    def rows_at_once(self, request: Request) -> int:
        """Return the size of a diffusion block."""
        return self.block_size * self.buffer_size

    def fed_end(self, request: Request) -> int:
        """Return the end of the answer; later positions are never fed."""
        return request.start + request.params.max_tokens

    def init(self, sequence: SequenceState, spec: Spec) -> Progress:
        """Mark diffusion blocks of prompt tokens as final; open the block with the rest."""
        length = sequence.request.start
        first = sequence.request.grid.start(length)
        return Progress((self._opened(sequence, first, spec),), first, length, sequence.progress.past)

    def schedule(self, sequence: SequenceState, spec: Spec) -> Span:
        """Return a span that samples the first position of the block, or feeds the block, or feeds one sub-block."""
        request, (block,) = sequence.request, sequence.progress.window
        start, end, masked = block.start, block.end, block.masked
        first = masked[0]
        if first == start:
            # No row of the block predicts its first position. The core feeds the row before the block.
            tokens, sampled, end = (), (first,), start
        else:
            sub = first - (first - start) % self.block_size
            stop = min(sub + self.block_size, end)
            sampled = masked[: bisect_left(masked, stop)]
            if sequence.progress.extra is None or first == sub:
                tokens = block.tokens
            else:
                tokens, start = block.tokens[sub - start : stop - start], sub
        draws = (sequence.steps - block.opened,) * len(sampled)
        return Span(request.who, Rows(start, tokens, end, request.grid), Wanted(sampled, draws))

    def commit(self, sequence: SequenceState, span: Span, samples: SpanSamples, spec: Spec) -> Progress:
        """Unmask positions of one sub-block; a full block becomes final and the next one opens."""
        (block,), past, extra = sequence.progress.window, sequence.progress.past, sequence.progress.extra
        start, block = block.start, decided_alone(_above(self.accept_threshold), sequence, block, span, samples, spec)
        if block.masked:
            if self.fdv2_use_block_cache and span.rows.stop > start and extra is None:
                extra = Refreshed()
            return Progress((block,), start, block.masked[0], past, extra)
        end = block.end
        if end == sequence.request.limit:
            return Progress((block,), start, end, past, extra)
        return Progress((self._opened(sequence, end, spec),), end, end, past.push_front(block.sealed()))

    def measure(self, sequence: SequenceState) -> int:
        """Return the masked positions of the answer: each pass unmasks at least one."""
        (block,) = sequence.progress.window
        return len(block.masked) + sequence.request.limit - block.end

    def forget(self, sequence: SequenceState, spec: Spec) -> Progress:
        """Return the progress without a block cache: the next pass feeds the whole block."""
        return replace(sequence.progress, extra=None)

    def _opened(self, sequence: SequenceState, start: int, spec: Spec) -> Block:
        """Return the block at `start`, cut at the answer's end."""
        return opened(sequence, start, min(self.block_size * self.buffer_size, sequence.request.limit - start), spec)


STRATEGY = FastDLLMV2
