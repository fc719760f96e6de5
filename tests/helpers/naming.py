"""A rule that names ids: what the network said of a position before, and a neighbour of it."""

from dataclasses import dataclass
from typing import final

from dlstep.core import Block, Extra, Probability, Rows, Rule, Sequence, Spec, Wants, best, check_ranges


@final
@dataclass(frozen=True, slots=True)
class Said(Extra):
    """The token that the last forward sampled at each undecided position, in order."""

    tokens: tuple[int, ...]


@final
@dataclass(frozen=True, slots=True)
class Loyal(Rule):
    """Takes a position if the token that the forward before sampled there is still probable, else the best one if it must."""

    loyal_threshold: Probability = 0.3
    """Least probability that the token of the forward before must have now."""
    names: bool = True
    """Ids are named; without them every position waits for its turn."""

    def __post_init__(self) -> None:
        check_ranges(self)

    @property
    def wants(self) -> Wants:
        """Two named ids for each position."""
        return Wants(named=2 if self.names else 0)

    def named(self, block: Block, limit: int, number: int) -> tuple[int, ...]:
        """The token of the forward before and the id above it; none in the first forward."""
        del limit
        assert (number == 0) == (block.extra is None)
        if not isinstance(block.extra, Said):
            return (-1,) * 2 * len(block.undecided)
        return tuple([each for token in block.extra.tokens for each in (token, token + 1)])

    def decided(self, sequence: Sequence, block: Block, rows: Rows, begin: int, must: bool, spec: Spec) -> Block:
        """The block with the positions whose token stayed probable, more probable than its neighbour."""
        end = begin + len(block.undecided)
        pairs = [rows.named_probabilities[2 * row : 2 * row + 2] for row in range(begin, end)] if self.names else []
        found = enumerate(pairs, begin)
        chosen = [row for row, (first, second) in found if isinstance(block.extra, Said) and first >= self._least(second)]
        chosen = chosen or ([best(rows, begin, end)] if must else [])
        left = tuple([rows.tokens[row] for row in range(begin, end) if row not in chosen])
        return block.decide(chosen, begin, rows.tokens, rows.probabilities).remembering(Said(left))

    def _least(self, other: float) -> float:
        return max(self.loyal_threshold, other)
