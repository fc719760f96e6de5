"""Saber: a threshold that follows the confidence so far, and remasking where it fell most.

Source: "Saber: An Efficient Sampling with Adaptive Acceleration and Backtracking Enhanced Remasking
for Diffusion Language Model", 2025, arXiv 2510.18165. Their code averages over all earlier blocks
and also remasks their tokens, here each block is separate: the same if the answer is one block, as
published. It may overwrite unmasked positions when few masks are left; this rule never does.
"""

from dataclasses import dataclass
from math import fsum
from typing import final

from ..core import Block, BlockPass, Extra, PlannedPass, Positions, PositiveInt, Probabilities, Rule
from ._shares import remasked

NEVER = -1.0


@final
@dataclass(frozen=True, slots=True)
class Confidences(Extra):
    """Confidences of the sampled positions: when last unmasked, and in the previous pass."""

    unmasked: Probabilities
    before: Probabilities


@final
@dataclass(frozen=True, slots=True)
class Saber(Rule):
    """A rule that unmasks positions above the mean confidence so far, and remasks those that lost most of it.

    It remasks an eighth of the tokens that a pass unmasked, at least half of `least_taken`, and
    fewer than were unmasked. The confidence of an unmasked position is the probability of the token
    sampled there, even a different one. Ties go to the lowest position.
    """

    remasks = True
    SWEEP = ("least_taken", (1, 2, 3, 4, 8))

    least_taken: PositiveInt = 2
    """Minimum number of positions that a pass unmasks, as long as there are masks."""

    def sampled(self, planned: PlannedPass) -> Positions:
        """Return all positions that were not given."""
        return planned.free

    def commit(self, block_pass: BlockPass) -> Block:
        """Return the block after unmasking and remasking; the net gain is at least one position."""
        block, sampled, least = block_pass.block, block_pass.sampled, self.least_taken
        size, extra = len(sampled), block.extra
        memory = extra if isinstance(extra, Confidences) else Confidences((NEVER,) * size, (0.0,) * size)
        now, tokens = block_pass.samples.probabilities, block_pass.samples.tokens
        masks = set(block.masked)
        chosen = self._chosen(memory, [place for place, position in enumerate(sampled) if position in masks], now)
        block = block.unmask([sampled[i] for i in chosen], [tokens[i] for i in chosen], [now[i] for i in chosen])
        if not block.masked:
            return block.with_extra(None)
        # A constraint may have dropped some tokens. Count only kept ones, so that fewer positions are remasked than unmasked.
        masks = set(block.masked)
        chosen = [place for place in chosen if sampled[place] not in masks]
        unmasked = list(memory.unmasked)
        for place in chosen:
            unmasked[place] = now[place]
        number = len(chosen)
        back = min(max(least // 2, -(-number // 8)), number - 1)
        if back > 0:
            before = memory.before
            falls = [(now[i] - before[i], position) for i, position in enumerate(sampled) if position not in masks]
            block = remasked(block, [position for _, position in sorted(falls)[:back]], block_pass.spec)
        return block.with_extra(Confidences(tuple(unmasked), now))

    def _chosen(self, memory: Confidences, masks: list[int], now: Probabilities) -> list[int]:
        """Return the masked places above the mean confidence, or the best ones if too few are."""
        known = [confidence for confidence in memory.unmasked if confidence != NEVER]
        threshold = fsum(known) / len(known) if known else 1.0
        chosen = [place for place in masks if now[place] > threshold]
        if len(chosen) >= self.least_taken:
            return chosen
        return sorted(sorted(masks, key=now.__getitem__, reverse=True)[: self.least_taken])


RULE = Saber
