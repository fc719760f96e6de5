"""Saber: a threshold that follows the confidence so far, and tokens taken back whose confidence fell most.

Source: "Saber: An Efficient Sampling with Adaptive Acceleration and Backtracking Enhanced Remasking for Diffusion Language
Model", 2025, arXiv 2510.18165. Its code takes the mean over all earlier blocks and remasks tokens of these, too; here each
block begins anew. The two are one where the answer is one block, as published. Its code may overwrite decided positions when
few masks are left; here a forward takes those that there are.
"""

from dataclasses import dataclass
from math import fsum
from typing import Annotated, final

from annotated_types import Gt

from ..core import Block, Extra, Rows, Rule, Sequence, Spec
from ._schedule import masked

NEVER = -1.0


@final
@dataclass(frozen=True, slots=True)
class Confidences(Extra):
    """Confidences of the positions that were not given: `taken` when last taken, `before` in the last forward."""

    taken: tuple[float, ...]
    before: tuple[float, ...]


@final
@dataclass(frozen=True, slots=True)
class Saber(Rule):
    """Takes what is surer than the mean of all tokens taken so far, and takes back the tokens that lost most confidence.

    The number taken back is an eighth of those taken, at least half of `least_taken`, and less than were taken.
    A decided position's confidence is the probability of the token that a forward samples there, be it its own or not.
    Equal values: the lowest position first.
    """

    SWEEP = ("least_taken", (1, 2, 3, 4, 8))

    least_taken: Annotated[int, Gt(0)] = 2
    """A forward takes at least so many positions, as long as they are there."""

    @property
    def revokes(self) -> bool:
        """Tokens become masks again."""
        return True

    def wanted(self, block: Block, limit: int, number: int) -> tuple[int, ...]:
        """All positions that were not given."""
        del number
        return block.sampled(limit)

    def decided(self, sequence: Sequence, block: Block, rows: Rows, begin: int, must: bool, spec: Spec) -> Block:
        """The block with what was taken and taken back; the difference is at least one position."""
        del must
        sampled, least = block.sampled(sequence.goal.limit), self.least_taken
        size, extra = len(sampled), block.extra
        memory = extra if isinstance(extra, Confidences) else Confidences((NEVER,) * size, (0.0,) * size)
        now, tokens = rows.probabilities[begin : begin + size], rows.tokens[begin : begin + size]
        masks = set(block.undecided)
        chosen = self._chosen(memory, [place for place, position in enumerate(sampled) if position in masks], now)
        block = block.take([sampled[i] for i in chosen], [tokens[i] for i in chosen], [now[i] for i in chosen])
        if not block.undecided:
            return block.remembering(None)
        taken = list(memory.taken)
        for place in chosen:
            taken[place] = now[place]
        number = max(least, len(chosen))
        back = min(max(least // 2, -(-number // 8)), number - 1)
        if back:
            masks, before = set(block.undecided), memory.before
            falls = [(now[i] - before[i], position) for i, position in enumerate(sampled) if position not in masks]
            block = masked(block, [position for _, position in sorted(falls)[:back]], spec)
        return block.remembering(Confidences(tuple(taken), now))

    def _chosen(self, memory: Confidences, masks: list[int], now: tuple[float, ...]) -> list[int]:
        """Return the masked places above the mean of all tokens taken so far, or the surest ones if those are too few."""
        known = [confidence for confidence in memory.taken if confidence != NEVER]
        threshold = fsum(known) / len(known) if known else 1.0
        chosen = [place for place in masks if now[place] > threshold]
        if len(chosen) >= self.least_taken:
            return chosen
        return sorted(sorted(masks, key=now.__getitem__, reverse=True)[: self.least_taken])


RULE = Saber
