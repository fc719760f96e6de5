"""Dilated unmasking: distant positions first, then those between them, whatever their probability.

Source: Luxembourg et al., "Plan for Speed: Dilated Scheduling for Masked Diffusion Language Models"
(DUS), 2025, arXiv 2506.19037. By default the authors' code keeps positions below 0.3 masked
(`keep`), and never unmasks those that stay masked; here the last pass unmasks all that are left.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, final

from annotated_types import Ge

from ..core import BlockPass, Choice, NonNegativeInt, PlannedPass, Probability


@lru_cache(maxsize=64)  # levels of long blocks are large
def levels(size: int, base: int, skip: int) -> tuple[frozenset[int], ...]:
    """Return the offsets that each pass of a block of `size` unmasks."""
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
    """A rule that unmasks one level of a block per pass: multiples of a falling stride.

    Offsets count only the positions of the block that were not given.
    """

    SWEEP = ("base", (2, 4, 8))

    base: Annotated[int, Ge(2)] = 2
    """The stride is divided by this from one level to the next."""
    skip: NonNegativeInt = 1
    """The block size is divided by `base` this many times to get the first stride."""
    keep: Probability = 0.0
    """Keep a position masked until the last level while its token's probability is below this."""

    def chosen(self, block_pass: BlockPass) -> list[int]:
        """Return the indices of this pass's level with a probability of at least `keep`; all indices in the last pass."""
        masked, free = block_pass.block.masked, block_pass.free
        all_levels = levels(len(free), self.base, self.skip)
        if block_pass.number >= len(all_levels) - 1:
            return list(range(len(masked)))
        level = all_levels[block_pass.number]
        offsets = {position: offset for offset, position in enumerate(free)}
        chances = enumerate(block_pass.samples.probabilities)
        return [index for index, chance in chances if offsets[masked[index]] in level and chance >= self.keep]

    def measure(self, planned: PlannedPass) -> int:
        """Return the number of levels left."""
        return max(self.bound(len(planned.free)) - planned.number, 1)

    def bound(self, size: int) -> int:
        """Return the number of levels."""
        return len(levels(size, self.base, self.skip))


RULE = Dilated
