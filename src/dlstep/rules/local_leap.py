"""LocalLeap: near positions that are certain, less certain ones are taken, too.

Source: Kong et al., "Accelerating Diffusion LLM Inference via Local Determinism Propagation" (LocalLeap), 2025, arXiv
2510.07081. In its code a relaxed threshold above the other one raises the bar near certain positions. Neighbourhoods end at
the block, and only positions decided in the same forward have one.
"""

from bisect import bisect_left
from dataclasses import dataclass
from typing import Annotated, final

from annotated_types import Ge

from ..core import Block, Choice, Probability, Rows, Sequence, best


@final
@dataclass(frozen=True, slots=True)
class LocalLeap(Choice):
    """Takes every position of at least `accept_threshold`, and those of at least `relaxed_threshold` near one of them.

    If there is none, the best one is taken where one must be.
    """

    SWEEP = ("relaxed_threshold", (0.9, 0.75, 0.6, 0.45, 0.3))

    accept_threshold: Probability = 0.9
    """A position is decided when the probability of its token is this or more."""
    relaxed_threshold: Probability = 0.75
    """The probability that is enough near a decided position; it adds nothing where it is `accept_threshold` or more."""
    radius: Annotated[int, Ge(0)] = 4
    """The farthest that two positions near one another are apart."""

    def chosen(self, sequence: Sequence, block: Block, rows: Rows, begin: int, must: bool) -> list[int]:
        """The certain rows and the likely ones near them."""
        undecided, accept, relaxed, radius = block.undecided, self.accept_threshold, self.relaxed_threshold, self.radius
        end = begin + len(undecided)
        probabilities = rows.probabilities[begin:end]
        anchors = [position for position, probability in zip(undecided, probabilities, strict=True) if probability >= accept]
        if not anchors:
            return [best(rows, begin, end)] if must else []
        chosen: list[int] = []
        last = len(anchors) - 1
        for row, probability in enumerate(probabilities, begin):
            if probability >= accept:
                chosen.append(row)
            elif probability >= relaxed:
                position = undecided[row - begin]
                # The first anchor that is not too far on the left; those after it are farther on the right.
                first = bisect_left(anchors, position - radius)
                if first <= last and anchors[first] <= position + radius:
                    chosen.append(row)
        return chosen


RULE = LocalLeap
