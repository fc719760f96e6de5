"""dInfer's hierarchical decoding: the best position of every stretch of masks, so that what is taken at once lies apart.

Source: Ma et al., "dInfer: An Efficient Inference Framework for Diffusion Language Models", 2025, arXiv 2510.08666. Where
several positions of a stretch are equally probable, the authors' code takes them all; here the lowest is taken. Their form that
takes tokens back is `remask_threshold`.
"""

from bisect import bisect_left
from dataclasses import dataclass
from typing import final

from ..core import Block, Choice, Probability, Rows, Sequence, Spec, best
from ._schedule import masked


def best_of_runs(positions: tuple[int, ...], probabilities: tuple[float, ...], low: float) -> list[int]:
    """Indices of the most probable of each stretch of consecutive `positions`, where it is above `low`."""
    found: list[int] = []
    top, highest, before = 0, -1.0, -1
    for index, position in enumerate(positions):
        if position != before + 1:
            if highest > low:
                found.append(top)
            highest = -1.0
        if probabilities[index] > highest:
            top, highest = index, probabilities[index]
        before = position
    if highest > low:
        found.append(top)
    return found


@final
@dataclass(frozen=True, slots=True)
class Hierarchy(Choice):
    """Takes the best position of each stretch of consecutive masks if it is above `low_threshold`, and all that are certain.

    The block's best one is taken in any case where one must be. With a `remask_threshold`, decided positions whose most
    probable token is less probable than that count as masks: of them and the others, more are taken than were doubted.
    """

    SWEEP = ("low_threshold", (0.9, 0.7, 0.5, 0.4, 0.2))

    low_threshold: Probability = 0.4
    """The best position of a stretch of masks is decided when the probability of its token is above this."""
    accept_threshold: Probability = 1.0
    """Any position is decided when the probability of its token is above this; 1: only the best of stretches are."""
    remask_threshold: Probability = 0.0
    """A decided position becomes a mask when the most probable token there, be it its own or not, is less probable than this,
    unless it is taken anew; 0: never."""

    def chosen(self, sequence: Sequence, block: Block, rows: Rows, begin: int, must: bool) -> list[int]:
        """The rows that are best of their stretch, and the certain ones."""
        end = begin + len(block.undecided)
        taken = self._taken(block.undecided, rows.probabilities[begin:end])
        return [begin + index for index in taken] or ([best(rows, begin, end)] if must else [])

    def decided(self, sequence: Sequence, block: Block, rows: Rows, begin: int, must: bool, spec: Spec) -> Block:
        """The block with what was chosen, less what is doubted."""
        if not self.remask_threshold:
            return Choice.decided(self, sequence, block, rows, begin, must, spec)
        sampled, doubt, doubted = block.sampled(sequence.goal.limit), self.remask_threshold, list[int]()
        chance_of = dict(zip(sampled, rows.probabilities[begin : begin + len(sampled)], strict=True))
        if min(chance_of.values()) < doubt:
            masks = {*block.undecided}
            doubted = [position for position, chance in chance_of.items() if chance < doubt and position not in masks]
            block = masked(block, doubted, spec)
        undecided = block.undecided
        offered = tuple([chance_of[position] for position in undecided])
        taken = self._taken(undecided, offered)
        if (missing := len(doubted) + must - len(taken)) > 0:
            falling = sorted(range(len(offered)), key=offered.__getitem__, reverse=True)
            taken = sorted((*taken, *[index for index in falling if index not in taken][:missing]))
        if not taken:
            return block
        tokens = rows.tokens[begin : begin + len(sampled)]
        found = [bisect_left(sampled, undecided[index]) for index in taken]
        return block.take(
            [sampled[place] for place in found], [tokens[place] for place in found], [offered[index] for index in taken]
        )

    def wanted(self, block: Block, limit: int, number: int) -> tuple[int, ...]:
        """All positions of the answer where decided ones may be doubted, the undecided ones otherwise."""
        del number
        return block.sampled(limit) if self.remask_threshold else block.undecided

    @property
    def revokes(self) -> bool:
        """With a `remask_threshold`."""
        return self.remask_threshold > 0.0

    def _taken(self, positions: tuple[int, ...], probabilities: tuple[float, ...]) -> list[int]:
        """Indices of the positions that are sure enough, ascending."""
        accept, taken = self.accept_threshold, best_of_runs(positions, probabilities, self.low_threshold)
        if accept < 1.0:
            certain = [index for index, probability in enumerate(probabilities) if probability > accept]
            return sorted({*taken, *certain})
        return taken


RULE = Hierarchy
