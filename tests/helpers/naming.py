"""A rule that scores ids: the token sampled at a position in the previous pass, and the next id."""

from dataclasses import dataclass
from typing import final

from dlstep.core import Block, Extra, Probability, Rule, SampleSpec, SequenceState, SpanSamples, Spec, best, check_ranges


@final
@dataclass(frozen=True, slots=True)
class Said(Extra):
    """The token that the last forward pass sampled at each masked position, in order."""

    tokens: tuple[int, ...]


@final
@dataclass(frozen=True, slots=True)
class Loyal(Rule):
    """Unmask a position if the token that the previous pass sampled there is still probable."""

    loyal_threshold: Probability = 0.3
    """Least probability that the token of the previous forward pass must have now."""
    names: bool = True
    """Whether ids are scored; otherwise each pass unmasks only the best position."""

    def __post_init__(self) -> None:
        check_ranges(self)

    @property
    def sample_spec(self) -> SampleSpec:
        """Two scored ids for each position."""
        return SampleSpec(scored=2 if self.names else 0)

    def scored_ids(self, block: Block, limit: int, number: int) -> tuple[int, ...]:
        """Return the token of the previous pass and the id above it; none in the first pass."""
        del limit
        assert number or block.extra is None
        if not isinstance(block.extra, Said):  # a fork may bring a block that another rule has sampled
            return (-1,) * 2 * len(block.masked)
        return tuple([scored_id for token in block.extra.tokens for scored_id in (token, token + 1)])

    def commit(self, sequence: SequenceState, block: Block, rows: SpanSamples, begin: int, must: bool, spec: Spec) -> Block:
        """The block with the positions whose token stayed probable, more probable than its neighbour."""
        end = begin + len(block.masked)
        pairs = [rows.scored_probabilities[2 * row : 2 * row + 2] for row in range(begin, end)] if self.names else []
        found = enumerate(pairs, begin)
        chosen = [row for row, (first, second) in found if isinstance(block.extra, Said) and first >= self._least(second)]
        chosen = chosen or ([best(rows, begin, end)] if must else [])
        after = block.unmask_rows(chosen, begin, rows.tokens, rows.probabilities)
        still = set(after.masked)  # with a constraint, also rows that were chosen
        left = tuple([rows.tokens[row] for row, position in enumerate(block.masked, begin) if position in still])
        return after.with_extra(Said(left))

    def _least(self, other: float) -> float:
        return max(self.loyal_threshold, other)
