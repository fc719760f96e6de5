"""Running confidence remasking: every forward fills the whole block, and the least probable tokens become masks again.

Source: He et al., "MDPO: Overcoming the Training-Inference Divide of Masked Diffusion Language Models", 2025, arXiv
2508.13148, where it is called RCR. MDPO keeps confidences for the whole canvas, so a forward may also remask tokens of earlier
blocks, and the next forward fills them again: `segment_size`. By default, a block remasks only its own tokens.
"""

from dataclasses import dataclass
from typing import Annotated, final

from annotated_types import Gt

from ..core import Block, Rows, Rule, Sequence, Spec, draw
from ._schedule import masked


@final
@dataclass(frozen=True, slots=True)
class RunningConfidence(Rule):
    """Fills all masks in each forward, then keeps the most probable tokens: the share of the schedule, rounded up.

    A token keeps the probability that it had when it was taken. Equal probabilities: the lowest position is kept.
    """

    SWEEP = ("steps_per_block", (1, 2, 3, 4, 8))

    steps_per_block: Annotated[int, Gt(0)] | None = None
    """Forwards of the schedule of a block, or of a segment; None: one for each position. In more forwards than there are
    positions, some only fill masks anew."""
    segment_size: Annotated[int, Gt(0)] | None = None
    """Positions of a segment: the answer is one block that is decoded segment by segment, and tokens of earlier segments may
    become masks again (MDPO); None: each block on its own."""

    @property
    def revokes(self) -> bool:
        """Tokens become masks again."""
        return True

    @property
    def whole(self) -> bool:
        """With segments."""
        return self.segment_size is not None

    def wanted(self, block: Block, limit: int, number: int) -> tuple[int, ...]:
        """All masks up to the end of the current segment; if another rule left none there, all masks."""
        if self.segment_size is None:
            return block.undecided
        sampled = block.sampled(limit)
        before, size, _ = self._segment(len(sampled), number)
        last = sampled[before + size - 1]
        return tuple([position for position in block.undecided if position <= last]) or block.undecided

    def decided(self, sequence: Sequence, block: Block, rows: Rows, begin: int, must: bool, spec: Spec) -> Block:
        """The block with the tokens that are kept; without masks in the last forward."""
        del must
        limit, number, start = sequence.goal.limit, draw(sequence, block), block.start
        sampled = block.sampled(limit)
        before, size, forwards = self._segment(len(sampled), number)
        filled = len(self.wanted(block, limit, number))
        block = block.decide(range(begin, begin + filled), begin, rows.tokens, rows.probabilities)
        kept = before - (-size * forwards // (self.steps_per_block or size))  # rounded up
        probabilities = block.probabilities
        falling = sorted(sampled[: before + size], key=lambda position: probabilities[position - start], reverse=True)
        return masked(block, falling[kept:], spec)

    def measure(self, sequence: Sequence, block: Block) -> int:
        """Forwards of the schedule that are left."""
        size = len(block.sampled(sequence.goal.limit))
        return max(self.bound(size) - (sequence.ledger.steps - block.opened), 1)

    def bound(self, size: int) -> int:
        """The schedule's length."""
        segment = self.segment_size or size
        full, rest = divmod(size, segment)
        return full * self._forwards(segment) + (self._forwards(rest) if rest else 0)

    def _forwards(self, size: int) -> int:
        """Return the forwards after which all of `size` positions are kept."""
        return (size - 1) * (self.steps_per_block or size) // size + 1

    def _segment(self, size: int, number: int) -> tuple[int, int, int]:
        """Positions before the segment that forward `number` decodes, positions in it, and its forwards so far, this one
        included; `size` positions are sampled in all."""
        segment = min(self.segment_size or size, size)
        before = min(number // self._forwards(segment), (size - 1) // segment)
        own = min(segment, size - before * segment)
        return before * segment, own, min(number - before * self._forwards(segment) + 1, self._forwards(own))


RULE = RunningConfidence
