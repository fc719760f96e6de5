"""Running confidence remasking: every forward fills the whole block, and the least probable tokens become masks again.

Source: He et al., "MDPO: Overcoming the Training-Inference Divide of Masked Diffusion Language Models", 2025, arXiv
2508.13148, where it is called RCR. There a position's confidence is kept for the whole canvas, so that tokens of earlier
blocks may be masked again and are not filled any more. Here only the positions of the block take part.
"""

from dataclasses import dataclass
from typing import Annotated, final

from annotated_types import Gt

from ..core import Block, Rows, Rule, Sequence, Spec, check_ranges, draw
from ._schedule import due, length, masked


@final
@dataclass(frozen=True, slots=True)
class RunningConfidence(Rule):
    """Fills all masks in each forward, then keeps the most probable tokens: as many as `Quota` would have taken by then.

    A token keeps the probability that it had when it was taken. Equal probabilities: the lowest position is kept.
    """

    SWEEP = ("steps_per_block", (1, 2, 3, 4, 8))

    steps_per_block: Annotated[int, Gt(0)] | None = None
    """Forwards that a block takes; None: one for each position."""

    def __post_init__(self) -> None:
        check_ranges(self)

    @property
    def revokes(self) -> bool:
        """Tokens become masks again."""
        return True

    def decided(self, sequence: Sequence, block: Block, rows: Rows, begin: int, must: bool, spec: Spec) -> Block:
        """The block with the tokens that are kept; without masks in the last forward."""
        del must
        sampled, start = block.sampled(sequence.goal.limit), block.start
        rows_of_block = range(begin, begin + len(block.undecided))
        block = block.decide(rows_of_block, begin, rows.tokens, rows.probabilities)
        kept = due(len(sampled), self.steps_per_block, draw(sequence, block) + 1)
        probabilities = block.probabilities
        falling = sorted(sampled, key=lambda position: probabilities[position - start], reverse=True)
        return masked(block, falling[kept:], spec)

    def measure(self, sequence: Sequence, block: Block) -> int:
        """Forwards of the schedule that are left."""
        size = len(block.sampled(sequence.goal.limit))
        return max(length(size, self.steps_per_block) - (sequence.ledger.steps - block.opened), 1)

    def bound(self, size: int) -> int:
        """The schedule's length."""
        return length(size, self.steps_per_block)


RULE = RunningConfidence
