"""Fast-dLLM v2: one block at a time, sub-blocks strictly from left to right, cached within a block.

The model sees its block and all earlier ones; row p-1 predicts position p. Three spans decode a
block: the *seed* samples its first token from the previous block's last row, while that is stored
as final; a *whole* pass feeds the block and refreshes its KV; a *part* feeds only the current
sub-block and reads the others as last stored. Source: Wu et al., "Fast-dLLM v2: Efficient
Block-Diffusion LLM", 2025, arXiv 2509.26328.
"""

from bisect import bisect_left
from dataclasses import dataclass
from typing import Annotated, final

from annotated_types import Gt

from ..core import Block, Grid, Probability, Request, Rows, Sequence, Span, Spec, Strategy, open_block, span_of
from ._blocks import mask_of, masked_only
from ._warm import cooled, warmed


@final
@dataclass(frozen=True, slots=True)
class FastDLLMV2(Strategy):
    """Sub-blocks of `block_size` positions; the model's diffusion block is `buffer_size` of them.

    The current sub-block unmasks every position with a probability above `accept_threshold`, or
    else its first best one. With `fdv2_use_block_cache`, a sub-block whose first token is decided
    is fed alone; without it, every pass feeds the diffusion block.
    """

    block_size: Annotated[int, Gt(0)] = 8
    """Positions of a sub-block."""
    buffer_size: Annotated[int, Gt(1)] = 4
    """Sub-blocks of a block."""
    accept_threshold: Probability = 0.9
    """Unmask a position when the probability of its token is above this."""
    fdv2_use_block_cache: bool = True
    """Decode a sub-block with the keys and values that earlier passes stored for the others."""

    @property
    def diffusion_block(self) -> int:
        """Positions that see one another and become final together."""
        return self.block_size * self.buffer_size

    @property
    def exact(self) -> bool:
        """False with the block cache: a part reads KV entries of tokens that have changed."""
        return not self.fdv2_use_block_cache

    def unfit(self, spec: Spec) -> str:
        """Return why a model without masks or with an unshifted head does not fit; else empty."""
        if spec.head_shift != 1:
            return f"its head_shift is {spec.head_shift}; the first token of a block is predicted by the row before it"
        return masked_only(spec)

    def grid(self, request: Request) -> Grid:
        """Return diffusion blocks from position 0 on."""
        del request
        return Grid(0, self.block_size * self.buffer_size)

    def atom(self, request: Request) -> int:
        """Return the size of a diffusion block."""
        del request
        return self.block_size * self.buffer_size

    def reach(self, request: Request) -> int:
        """Return the end of the answer; later positions are never fed."""
        return len(request.prompt) + request.params.max_tokens

    def init(self, sequence: Sequence, spec: Spec) -> Sequence:
        """Mark diffusion blocks of prompt tokens as final; open the block with the rest."""
        length = len(sequence.goal.request.prompt)
        first = sequence.goal.grid.start(length)
        return sequence.moved(sequence.past, (self._opened(sequence, first, spec),), first, length)

    def schedule(self, sequence: Sequence, spec: Spec) -> Span:
        """Return the seed, whole or part span that the block's state requires."""
        del spec
        goal, (block,) = sequence.goal, sequence.window
        start, end, undecided = block.start, block.end, block.undecided
        first = undecided[0]
        if first == start:
            # No row of this block predicts it: the core feeds the row before it.
            tokens, wanted, end = (), (first,), start
        else:
            sub = first - (first - start) % self.block_size
            stop = min(sub + self.block_size, end)
            wanted = undecided[: bisect_left(undecided, stop)]
            if sequence.extra is None or first == sub:
                tokens = block.tokens
            else:
                tokens, start = block.tokens[sub - start : stop - start], sub
        request = goal.request
        draws = (sequence.ledger.steps - block.opened,) * len(wanted)
        return span_of(request, start, tokens, goal.grid, wanted, draws, end=end)

    def commit(self, sequence: Sequence, span: Span, rows: Rows, spec: Spec) -> Sequence:
        """Unmask positions of one sub-block; a full block becomes final and the next one opens."""
        (block,) = sequence.window
        start, probabilities = block.start, rows.probabilities
        accept = self.accept_threshold
        chosen = [row for row, probability in enumerate(probabilities) if probability > accept]
        block = block.decide(chosen or [probabilities.index(max(probabilities))], 0, rows.tokens, probabilities)
        if block.undecided:
            if self.fdv2_use_block_cache and span.stop > start:
                sequence = warmed(sequence)
            return sequence.moved(sequence.past, (block,), start, block.undecided[0])
        end = block.end
        if end == sequence.goal.limit:
            return sequence.moved(sequence.past, (block,), start, end)
        past, window = sequence.past.push_front(block.sealed()), (self._opened(sequence, end, spec),)
        return cooled(sequence).moved(past, window, end, end)

    def measure(self, sequence: Sequence) -> int:
        """Return the masked positions of the answer: each pass unmasks at least one."""
        (block,) = sequence.window
        return len(block.undecided) + sequence.goal.limit - block.end

    def forget(self, sequence: Sequence, spec: Spec) -> Sequence:
        """Return the sequence without a block cache: the next pass feeds the whole block."""
        del spec
        return cooled(sequence)

    def _opened(self, sequence: Sequence, start: int, spec: Spec) -> Block:
        """Return the block at `start`, cut at the answer's end."""
        goal = sequence.goal
        size = min(self.block_size * self.buffer_size, goal.limit - start)
        return open_block(start, size, goal.limit, goal.request.prompt, mask_of(spec), sequence.ledger.steps)


STRATEGY = FastDLLMV2
