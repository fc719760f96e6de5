"""Dilated unmasking: positions far apart first, those between them later, whatever their probabilities are.

Source: Luxembourg et al., "Plan for Speed: Dilated Scheduling for Masked Diffusion Language Models" (DUS), 2025, arXiv
2506.19037. Its code keeps back what is below 0.3 by default (`keep`). In the authors' code, positions that stay masks because
their tokens are not probable enough are never taken; here the last forward takes all that is left.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, final

from annotated_types import Ge

from ..core import Block, Choice, Probability, Rows, Sequence, draw


@lru_cache(maxsize=64)  # long blocks make large ones
def levels(size: int, base: int, skip: int) -> tuple[frozenset[int], ...]:
    """The offsets that each forward of a block of `size` takes."""
    left, found = set(range(size)), list[frozenset[int]]()
    stride = size
    for _ in range(skip):
        stride //= base
        if not stride:
            break
    while stride:
        found.append(frozenset(offset for offset in left if offset % stride == 0))
        left -= found[-1]
        stride //= base
    if left:
        found.append(frozenset(left))
    if len(found) > 1 and len(found[-1]) < len(found[-2]):
        *found, before, last = found
        found.append(before | last)
    return tuple(found)


@final
@dataclass(frozen=True, slots=True)
class Dilated(Choice):
    """Takes one level of a block in each forward: multiples of a stride first, then of the next smaller stride, to 1.

    Levels are counted over the positions of the block that were not given.
    """

    SWEEP = ("base", (2, 4, 8))

    base: Annotated[int, Ge(2)] = 2
    """The stride is divided by this from one level to the next."""
    skip: Annotated[int, Ge(0)] = 1
    """How often the block's size is divided to get the first stride."""
    keep: Probability = 0.0
    """A position stays a mask until the last level while the probability of its token is below this."""

    def chosen(self, sequence: Sequence, block: Block, rows: Rows, begin: int, must: bool) -> list[int]:
        """The rows of this forward's level."""
        number, undecided, keep = draw(sequence, block), block.undecided, self.keep
        sampled = block.sampled(sequence.goal.limit)
        all_levels = levels(len(sampled), self.base, self.skip)
        if number >= len(all_levels) - 1:
            return list(range(begin, begin + len(undecided)))
        level = all_levels[number]
        # Only what was given in front shifts the offsets; given positions in between are left out of `sampled`.
        if len(sampled) == sampled[-1] + 1 - sampled[0]:
            first = sampled[0]
            chosen = [row for row, position in enumerate(undecided, begin) if position - first in level]
        else:
            offsets = {position: offset for offset, position in enumerate(sampled)}
            chosen = [row for row, position in enumerate(undecided, begin) if offsets[position] in level]
        return [row for row in chosen if rows.probabilities[row] >= keep] if keep else chosen

    def measure(self, sequence: Sequence, block: Block) -> int:
        """The levels that are left."""
        return max(self.bound(len(block.sampled(sequence.goal.limit))) - (sequence.ledger.steps - block.opened), 1)

    def bound(self, size: int) -> int:
        """All levels."""
        return len(levels(size, self.base, self.skip))


RULE = Dilated
