"""ReMDM: remask tokens in extra passes before a block is full.

Source: Wang et al., "Remasking Discrete Diffusion Models with Inference-Time Scaling", 2025, arXiv
2503.00307, the authors' variant for LLaDA. Difference: it counts seven eighths of the passes, their
code seven eighths of the positions: the same if each pass unmasks one position.
"""

from dataclasses import dataclass
from typing import Annotated, final

from annotated_types import Ge, Gt

from ..core import Block, BlockPass, PlannedPass, Rule
from ._shares import due, highest, length, remasked, share


@final
@dataclass(frozen=True, slots=True)
class ReMDM(Rule):
    """A rule that fills a block by a schedule and remasks tokens on the way.

    It unmasks even shares, the most probable first. After seven eighths of its passes follow
    `remask_forwards` more, by default as many as the block takes without them. Before each of
    these, the `remask_count` least probable tokens are remasked; the pass unmasks as many.
    Probabilities are those when tokens were unmasked. Ties go to the lowest position in both cases.
    """

    SWEEP = ("steps_per_block", (2, 3, 4, 6, 8))

    steps_per_block: Annotated[int, Gt(0)] | None = None
    """Forward passes per block without those that remask; None: one per position."""
    remask_forwards: Annotated[int, Ge(0)] | None = None
    """Passes that remask; None: as many as the block has without them."""
    remask_count: Annotated[int, Gt(0)] | None = None
    """Tokens that each of these passes remasks; None: 1."""

    @property
    def remasks(self) -> bool:
        """True: tokens may be remasked."""
        return True

    def commit(self, block_pass: BlockPass) -> Block:
        """Return the block with tokens unmasked, or remasked if the next pass remasks."""
        block, samples, number = block_pass.block, block_pass.samples, block_pass.number
        sampled = block.sampled(block_pass.limit)
        size, steps, count = len(sampled), self.steps_per_block, self.remask_count or 1
        early, loops = max(length(size, steps) * 7 // 8, 1), self._loops(size)  # passes that unmask, passes that remask
        usual = number if number < early else max(early, number - loops)  # schedule passes before this one
        if number + 1 >= self.bound(size):
            count_unmasked = size
        elif early <= number < early + loops:
            count_unmasked = min(count, due(size, steps, early))
        else:
            count_unmasked = share(size, steps, usual)
        chosen = highest(samples.probabilities, count_unmasked)
        block = block.unmask_rows(chosen, samples.tokens, samples.probabilities)
        if not early <= number + 1 < early + loops:
            return block
        masks, start, probabilities = set(block.masked), block.start, block.probabilities
        held = [position for position in sampled if position not in masks]
        return remasked(block, sorted(held, key=lambda position: probabilities[position - start])[:count], block_pass.spec)

    def measure(self, planned: PlannedPass) -> int:
        """Return the number of passes left in the schedule."""
        return max(self.bound(len(planned.block.sampled(planned.limit))) - planned.number, 1)

    def bound(self, size: int) -> int:
        """Return the length of the schedule, with the passes that remask."""
        return length(size, self.steps_per_block) + self._loops(size)

    def _loops(self, size: int) -> int:
        return length(size, self.steps_per_block) if self.remask_forwards is None else self.remask_forwards


RULE = ReMDM
