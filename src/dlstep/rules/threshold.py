"""Fast-dLLM's threshold: every position whose token is probable enough is taken.

Source: Wu et al., "Fast-dLLM: Training-free Acceleration of Diffusion LLM by Enabling KV Cache and Parallel Decoding", 2025,
arXiv 2505.22618.
"""

from dataclasses import dataclass
from typing import final

from ..core import Block, Choice, Probability, Rows, Sequence, best, check_ranges


@final
@dataclass(frozen=True, slots=True)
class Threshold(Choice):
    """Takes every position whose probability is above `accept_threshold`, or else the best one where one must be taken."""

    accept_threshold: Probability = 0.9
    """A position is decided when the probability of its token is above this."""
    inclusive: bool = False
    """A probability that equals the threshold is enough."""

    def __post_init__(self) -> None:
        check_ranges(self)

    def chosen(self, sequence: Sequence, block: Block, rows: Rows, begin: int, must: bool) -> list[int]:
        """The rows above the threshold."""
        end, accept = begin + len(block.undecided), self.accept_threshold
        of_block = enumerate(rows.probabilities[begin:end], begin)
        if self.inclusive:
            chosen = [row for row, probability in of_block if probability >= accept]
        else:
            chosen = [row for row, probability in of_block if probability > accept]
        return chosen or ([best(rows, begin, end)] if must else [])


RULE = Threshold
