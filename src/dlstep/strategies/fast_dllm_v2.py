"""Fast-dLLM v2: one block at a time, its sub-blocks strictly from left to right, with a cache inside the block.

The model sees its own block in full and those before it, and predicts position p by row p-1. Three spans decode a block: the
*seed* is its first token, predicted by the last row of the block before it while that is stored for good; a *whole* forward
feeds the block and refreshes the keys and values of all its positions; a *part* feeds the sub-block in work only, and sees the
others as they were stored last. Source: Wu et al., "Fast-dLLM v2: Efficient Block-Diffusion LLM", 2025, arXiv 2509.26328.
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
    """Sub-blocks of `block_size` positions; a diffusion block, the model's own, is `buffer_size` of them.

    The sub-block in work takes every position whose probability is above `accept_threshold`, or else its best one, the lowest
    if several are. With `fdv2_use_block_cache` a sub-block whose first token is decided is fed alone; without it, every forward
    feeds the diffusion block.
    """

    block_size: Annotated[int, Gt(0)] = 8
    """Positions of a sub-block."""
    buffer_size: Annotated[int, Gt(1)] = 4
    """Sub-blocks of a block."""
    accept_threshold: Probability = 0.9
    """A position is decided when the probability of its token is above this."""
    fdv2_use_block_cache: bool = True
    """Refine a sub-block against keys and values that earlier forwards stored of the others."""

    @property
    def diffusion_block(self) -> int:
        """Positions that see one another and become final together."""
        return self.block_size * self.buffer_size

    @property
    def exact(self) -> bool:
        """Not with the block cache: a part sees keys and values of tokens that have changed since."""
        return not self.fdv2_use_block_cache

    def unfit(self, spec: Spec) -> str:
        """A model without masks, or one whose rows predict their own positions."""
        if spec.head_shift != 1:
            return f"its head_shift is {spec.head_shift}; the first token of a block is predicted by the row before it"
        return masked_only(spec)

    def grid(self, request: Request) -> Grid:
        """Diffusion blocks from position 0 on."""
        del request
        return Grid(0, self.block_size * self.buffer_size)

    def atom(self, request: Request) -> int:
        """A diffusion block."""
        del request
        return self.block_size * self.buffer_size

    def reach(self, request: Request) -> int:
        """The end of the answer: positions behind it are never fed."""
        return len(request.prompt) + request.params.max_tokens

    def init(self, sequence: Sequence, spec: Spec) -> Sequence:
        """Diffusion blocks that the prompt fills are final; the rest of it is given in the first open block."""
        length = len(sequence.goal.request.prompt)
        first = sequence.goal.grid.start(length)
        return sequence.moved(sequence.past, (self._opened(sequence, first, spec),), first, length)

    def schedule(self, sequence: Sequence, spec: Spec) -> Span:
        """The seed, the whole block, or the first sub-block with undecided positions, as the block's state asks for."""
        del spec
        goal, (block,) = sequence.goal, sequence.window
        start, end, undecided = block.start, block.end, block.undecided
        first = undecided[0]
        if first == start:
            # No row of its own block predicts it: the core feeds the row in front.
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
        """Decide positions of one sub-block; a full block becomes final and the next one opens."""
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
        """Undecided positions of the answer: each forward decides at least one."""
        (block,) = sequence.window
        return len(block.undecided) + sequence.goal.limit - block.end

    def forget(self, sequence: Sequence, spec: Spec) -> Sequence:
        """Nothing of the block is stored any more."""
        del spec
        return cooled(sequence)

    def _opened(self, sequence: Sequence, start: int, spec: Spec) -> Block:
        """The block at `start`, as far as the answer goes."""
        goal = sequence.goal
        size = min(self.block_size * self.buffer_size, goal.limit - start)
        return open_block(start, size, goal.limit, goal.request.prompt, mask_of(spec), sequence.ledger.steps)


STRATEGY = FastDLLMV2
