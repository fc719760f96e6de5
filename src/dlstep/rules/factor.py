"""Fast-dLLM's factor: the more positions are taken at once, the more probable the least probable of them must be.

Source: Wu et al., "Fast-dLLM: Training-free Acceleration of Diffusion LLM by Enabling KV Cache and Parallel Decoding", 2025,
arXiv 2505.22618. As in the authors' code, every smaller number of positions must pass, too; the paper asks it of the last
alone, and strictly. Copies of the code take a position that fails if it is the block's least probable one; here none does.
"""

from dataclasses import dataclass
from typing import Annotated, final

from annotated_types import Interval

from ..core import Block, Choice, Rows, Sequence
from ._ranking import highest


@final
@dataclass(frozen=True, slots=True)
class Factor(Choice):
    """Takes the most probable positions, as long as the k-th of them has a probability of at least 1 - `factor` / (k + 1).

    The first is taken in any case where one must be taken.
    """

    SWEEP = ("factor", (0.25, 0.5, 1.0, 2.0, 4.0))

    factor: Annotated[float, Interval(ge=0.0, lt=float("inf"))] = 1.0
    """How much doubt k positions may have: the k-th is taken at a probability of 1 - this / (k + 1) or more."""

    def chosen(self, sequence: Sequence, block: Block, rows: Rows, begin: int, must: bool) -> list[int]:
        """The most probable rows, up to the first that fails."""
        factor = self.factor
        probabilities = rows.probabilities[begin : begin + len(block.undecided)]
        count = 0
        for probability in sorted(probabilities, reverse=True):
            if probability < 1.0 - factor / (count + 2) and (count or not must):
                break
            count += 1
        return [begin + index for index in highest(probabilities, count)]


RULE = Factor
