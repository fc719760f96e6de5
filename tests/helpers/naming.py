"""Strategies that score ids: the token sampled at a position in the previous pass, and the next id."""

from dataclasses import dataclass, replace
from typing import final

from dlstep.core import Block, BlockPass, Extra, Probability, Rule, SampleSpec, SequenceState, Span, Spec, check_ranges
from dlstep.strategies._blocks import Blockwise
from dlstep.strategies._canvas import Canvas


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

    def commit(self, block_pass: BlockPass) -> Block:
        """The block with the positions whose token stayed probable, more probable than its neighbour."""
        block, samples = block_pass.block, block_pass.samples
        pairs = zip(samples.scored_probabilities[::2], samples.scored_probabilities[1::2], strict=True)
        chosen = [i for i, (one, two) in enumerate(pairs) if isinstance(block.extra, Said) and one >= self._least(two)]
        if block_pass.must and not chosen:
            chosen = [samples.probabilities.index(max(samples.probabilities))]
        after = block.unmask_rows(chosen, samples.tokens, samples.probabilities)
        still = set(after.masked)  # with a constraint, also positions that were chosen
        left = tuple([token for position, token in zip(block.masked, samples.tokens, strict=True) if position in still])
        return after.with_extra(Said(left))

    def _least(self, other: float) -> float:
        return max(self.loyal_threshold, other)


def scored(sequence: SequenceState, span: Span) -> Span:
    """The span with the token of the previous pass and the id above it for each position; -1 in the first pass."""
    if not sequence.request.strategy.sample_spec.scored:
        return span
    said = {
        position: token
        for block in sequence.progress.window
        if isinstance(block.extra, Said)
        for position, token in zip(block.masked, block.extra.tokens, strict=True)
    }
    pairs = [(said[p], said[p] + 1) if p in said else (-1, -1) for p in span.wanted.sampled]
    return replace(span, wanted=replace(span.wanted, scored_ids=tuple([each for pair in pairs for each in pair])))


@final
@dataclass(frozen=True, slots=True)
class NamingGrid(Blockwise):
    """`MultiBD` that scores ids."""

    rule: Rule = Loyal()

    def schedule(self, sequence: SequenceState, spec: Spec) -> Span:
        """The span with scored ids."""
        return scored(sequence, Blockwise.schedule(self, sequence, spec))


@final
@dataclass(frozen=True, slots=True)
class NamingCanvas(Canvas):
    """`DualCache` that scores ids."""

    rule: Rule = Loyal()

    def schedule(self, sequence: SequenceState, spec: Spec) -> Span:
        """The span with scored ids."""
        return scored(sequence, Canvas.schedule(self, sequence, spec))
