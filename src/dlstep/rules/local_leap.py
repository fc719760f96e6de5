"""LocalLeap: also unmask less certain positions next to certain ones.

Source: Kong et al., "Accelerating Diffusion LLM Inference via Local Determinism Propagation"
(LocalLeap), 2025, arXiv 2510.07081. In their code, a relaxed threshold above the other one raises
the bar near certain positions. Neighbourhoods end at the block, around positions of the same pass.
"""

from bisect import bisect_left
from dataclasses import dataclass
from typing import Annotated, final

from annotated_types import Ge

from ..core import Block, Choice, Probability, SequenceState, SpanSamples, best


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
    radius: Annotated[int, Ge(0)] = 4
    """The largest distance between neighbours."""

    def chosen(self, sequence: SequenceState, block: Block, rows: SpanSamples, begin: int, must: bool) -> list[int]:
        """Return the certain rows and the likely rows near them."""
        masked, accept, relaxed, radius = block.masked, self.accept_threshold, self.relaxed_threshold, self.radius
        end = begin + len(masked)
        probabilities = rows.probabilities[begin:end]
        anchors = [position for position, probability in zip(masked, probabilities, strict=True) if probability >= accept]
        if not anchors:
            return [best(rows, begin, end)] if must else []
        chosen: list[int] = []
        last = len(anchors) - 1
        for row, probability in enumerate(probabilities, begin):
            if probability >= accept:
                chosen.append(row)
            elif probability >= relaxed:
                position = masked[row - begin]
                # The leftmost anchor within `radius` on the left; later anchors are farther to the
                # right.
                first = bisect_left(anchors, position - radius)
                if first <= last and anchors[first] <= position + radius:
                    chosen.append(row)
        return chosen


RULE = LocalLeap
