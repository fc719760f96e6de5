"""LocalLeap: also unmask less certain positions next to certain ones.

Source: Kong et al., "Accelerating Diffusion LLM Inference via Local Determinism Propagation"
(LocalLeap), 2025, arXiv 2510.07081. In their code, a relaxed threshold above the other one raises
the bar near certain positions. Neighbourhoods end at the block, around positions of the same pass.
"""

from bisect import bisect_left
from dataclasses import dataclass
from typing import final

from ..core import BlockPass, Choice, NonNegativeInt, Probability
from ._shares import highest


@final
@dataclass(frozen=True, slots=True)
class LocalLeap(Choice):
    """A rule that unmasks certain positions, and less certain ones near them.

    If no position is certain and one must be unmasked, the rule unmasks the best one.
    """

    SWEEP = ("relaxed_threshold", (0.9, 0.75, 0.6, 0.45, 0.3))

    accept_threshold: Probability = 0.9
    """Unmask a position when the probability of its token is at least this."""
    relaxed_threshold: Probability = 0.75
    """The probability that is enough near a certain position, at most `accept_threshold`."""
    radius: NonNegativeInt = 4
    """The largest distance between neighbours."""

    def chosen(self, block_pass: BlockPass) -> list[int]:
        """Return the indices of the certain positions and of the likely ones near them."""
        masked, probabilities = block_pass.block.masked, block_pass.samples.probabilities
        accept, relaxed, radius = self.accept_threshold, self.relaxed_threshold, self.radius
        anchors = [position for position, probability in zip(masked, probabilities, strict=True) if probability >= accept]
        if not anchors:
            return highest(probabilities, block_pass.must)
        chosen: list[int] = []
        last = len(anchors) - 1
        for index, (position, probability) in enumerate(zip(masked, probabilities, strict=True)):
            if probability >= accept:
                chosen.append(index)
            elif probability >= relaxed:
                # The leftmost anchor within `radius` on the left; later anchors are farther to the
                # right.
                first = bisect_left(anchors, position - radius)
                if first <= last and anchors[first] <= position + radius:
                    chosen.append(index)
        return chosen


RULE = LocalLeap
