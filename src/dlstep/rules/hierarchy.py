"""dInfer's hierarchical decoding: unmask the best position of each run of masks.

Source: Ma et al., "dInfer: An Efficient Inference Framework for Diffusion Language Models", 2025,
arXiv 2510.08666. Of equally probable positions of a run, the authors' code unmasks all, this rule
the lowest. `remask_threshold` selects their variant with remasking.
"""

from dataclasses import dataclass
from typing import final

from ..core import Block, BlockPass, Choice, PlannedPass, Positions, Probabilities, Probability
from ._shares import highest, remasked


def best_of_runs(positions: Positions, probabilities: Probabilities, low: float) -> list[int]:
    """Return the indices of the best position of each run of `positions`, if above `low`."""
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
    """A rule that unmasks the best position of each run of masks, and all certain ones.

    With `must`, it unmasks at least the best position. With `remask_threshold`, unmasked positions
    whose best token is less probable become masks, and each pass unmasks more than it remasks.
    """

    SWEEP = ("low_threshold", (0.9, 0.7, 0.5, 0.4, 0.2))

    low_threshold: Probability = 0.4
    """Unmask the best position of a run of masks if the probability of its token is above this."""
    accept_threshold: Probability = 1.0
    """Unmask any position if its token's probability is above this; 1: only the best of runs."""
    remask_threshold: Probability = 0.0
    """Remask an unmasked position if the best token there is less probable than this; 0: never."""

    def chosen(self, block_pass: BlockPass) -> list[int]:
        """Return the best indices of runs, and the certain ones; if there are none and `must`, the most probable one."""
        probabilities = block_pass.samples.probabilities
        return self._certain(block_pass.block.masked, probabilities) or highest(probabilities, block_pass.must)

    def commit(self, block_pass: BlockPass) -> Block:
        """Return the block with chosen positions unmasked, and uncertain ones remasked."""
        if not self.remask_threshold:
            return Choice.commit(self, block_pass)
        fed, samples, sampled = block_pass.block, block_pass.samples, block_pass.sampled
        masks, chance_of = {*fed.masked}, dict(zip(sampled, samples.probabilities, strict=True))
        doubted = [p for p, chance in chance_of.items() if chance < self.remask_threshold and p not in masks]
        block = remasked(fed, doubted, block_pass.spec)
        masked = block.masked
        offered = tuple([chance_of[position] for position in masked])
        chosen = self._certain(masked, offered)
        if (missing := len(doubted) + block_pass.must - len(chosen)) > 0:
            falling = sorted(range(len(offered)), key=offered.__getitem__, reverse=True)
            chosen = sorted((*chosen, *[index for index in falling if index not in chosen][:missing]))
        if not chosen:
            return block
        token_of = dict(zip(sampled, samples.tokens, strict=True))
        block = block.unmask_rows(chosen, [token_of[position] for position in masked], offered)
        if len(block.masked) <= len(fed.masked) - block_pass.must:
            return block
        # A constraint dropped so many tokens that the masks would not become fewer: commit again without remasking.
        return Choice.commit(self, block_pass.only(fed.masked))

    def sampled(self, planned: PlannedPass) -> Positions:
        """Return all sampled positions if unmasked ones may be remasked, else the masked positions."""
        return planned.free if self.remask_threshold else planned.block.masked

    @property
    def remasks(self) -> bool:
        """True with a `remask_threshold`."""
        return self.remask_threshold > 0.0

    def _certain(self, positions: Positions, probabilities: Probabilities) -> list[int]:
        """Return the indices of the positions that are certain enough, ascending."""
        accept, chosen = self.accept_threshold, best_of_runs(positions, probabilities, self.low_threshold)
        if accept < 1.0:
            certain = [index for index, probability in enumerate(probabilities) if probability > accept]
            return sorted({*chosen, *certain})
        return chosen


RULE = Hierarchy
