"""Fast-dLLM's factor: the more positions at once, the more probable the least one must be.

Source: Wu et al., "Fast-dLLM: Training-free Acceleration of Diffusion LLM by Enabling KV Cache and
Parallel Decoding", 2025, arXiv 2505.22618. As in their code, every smaller number of positions must
pass too; the paper requires it of the last only, strictly. Some copies of the code unmask a failing
position if it is the block's least probable one.
"""

from dataclasses import dataclass
from typing import final

from ..core import BlockPass, Choice, NonNegativeFloat
from ._shares import highest


@final
@dataclass(frozen=True, slots=True)
class Factor(Choice):
    """A rule that unmasks while the k-th best position has 1 - `factor` / (k + 1) or more.

    If a position must be unmasked, the first one always is.
    """

    SWEEP = ("factor", (0.25, 0.5, 1.0, 2.0, 4.0))

    factor: NonNegativeFloat = 1.0
    """The k-th position needs a probability of at least 1 - factor / (k + 1)."""

    def chosen(self, block_pass: BlockPass) -> list[int]:
        """Return the most probable indices, before the first one below its bound; at least one if `must`."""
        factor, must, probabilities = self.factor, block_pass.must, block_pass.samples.probabilities
        count = 0
        for probability in sorted(probabilities, reverse=True):
            if probability < 1.0 - factor / (count + 2) and (count or not must):
                break
            count += 1
        return highest(probabilities, count)


RULE = Factor
