"""Fixed schedules: each forward of a block takes its share of the positions, the most probable ones first.

Source: Nie et al., "Large Language Diffusion Models" (LLaDA), 2025, arXiv 2502.09992, `low_confidence`.
"""

from dataclasses import dataclass
from typing import Annotated, final

from annotated_types import Gt

from ..core import Block, Choice, Rows, Sequence, check_ranges, draw


@final
@dataclass(frozen=True, slots=True)
class Quota(Choice):
    """Takes an even share of a block in each of `steps_per_block` forwards; what is left over goes to the first ones.

    Equal probabilities: the lowest position first. The positions that were not given when the block opened are shared out.
    """

    SWEEP = ("steps_per_block", (1, 2, 3, 4, 8))

    steps_per_block: Annotated[int, Gt(0)] | None = None
    """Forwards that a block takes; None: one for each position."""

    def __post_init__(self) -> None:
        check_ranges(self)

    def chosen(self, sequence: Sequence, block: Block, rows: Rows, begin: int, must: bool) -> list[int]:
        """The most probable rows, as many as are due."""
        count = len(block.undecided)
        size = len(block.sampled(sequence.goal.limit))
        share, over = divmod(size, self.steps_per_block or size)
        due = max(share + (draw(sequence, block) < over), 1)
        falling = sorted(range(begin, begin + count), key=rows.probabilities.__getitem__, reverse=True)
        return sorted(falling[:due])

    def measure(self, sequence: Sequence, block: Block) -> int:
        """The forwards that the schedule has left."""
        return self.bound(len(block.sampled(sequence.goal.limit))) - (sequence.ledger.steps - block.opened)

    def bound(self, size: int) -> int:
        """The forwards of the schedule; each of them takes something."""
        return min(size, self.steps_per_block or size)


RULE = Quota
