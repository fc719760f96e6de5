"""A forward pass as a rule sees it: one block, the samples of this block, and facts of the pass.

The classes are named tuples, because each step builds two of them for each block: building a frozen dataclass takes four
times as long.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, NamedTuple

from .block import Block
from .plan import Span, SpanSamples
from .sequence import SequenceState
from .spec import Spec


class PlannedPass(NamedTuple):
    """A forward pass of a block before it runs."""

    block: Block
    """The block to feed."""
    number: int
    """Number of the pass among those that sample the block, from 0."""
    limit: int
    """First position past the answer; from there on, positions are void."""
    sequence: SequenceState
    """The sequence of the block. Its request has what few rules need: seed, temperature and constraint."""

    def of(self, block: Block) -> "PlannedPass":
        """Return the same pass of another block, such as the part of a block that an inner rule decodes.

        Args:
            block: A block of positions of `self.block`.
        """
        return self._replace(block=block, number=self.number + self.block.opened - block.opened)


class BlockSamples(NamedTuple):
    """Samples of a block, one entry per position that the pass sampled; `SpanSamples` describes the fields."""

    tokens: tuple[int, ...]
    """Sampled token ids."""
    probabilities: tuple[float, ...]
    """Probability of each token."""
    entropies: tuple[float, ...] = ()
    """Entropies in nats; empty unless requested."""
    margins: tuple[float, ...] = ()
    """Best minus second-best probability; empty unless requested."""
    best_ids: tuple[int, ...] = ()
    """The `SampleSpec.best` most probable ids of each entry, one entry after the other."""
    best_probabilities: tuple[float, ...] = ()
    """Probabilities of `best_ids`."""
    noise: tuple[int, ...] = ()
    """One uniform random id per entry; empty unless requested."""
    scored_probabilities: tuple[float, ...] = ()
    """Probabilities of `Wanted.scored_ids`."""

    def at(self, indices: Sequence[int]) -> "BlockSamples":
        """Return some entries, in this order.

        Args:
            indices: Indices of the entries.
        """
        return BlockSamples(*[_entries(values, len(self.tokens), indices) for values in self])


def _entries(values: tuple[Any, ...], count: int, indices: Sequence[int]) -> tuple[Any, ...]:
    """Return the values of some entries; `values` has the same number for each of `count` entries."""
    width = len(values) // count
    return tuple([value for index in indices for value in values[index * width : (index + 1) * width]])


class BlockPass(NamedTuple):
    """A forward pass of a block after it ran."""

    block: Block
    """The block as it was fed."""
    number: int
    """Number of the pass among those that sample the block, from 0."""
    limit: int
    """First position past the answer; from there on, positions are void."""
    sequence: SequenceState
    """The sequence of the block, which already counts the pass."""
    sampled: tuple[int, ...]
    """Positions of the block that the pass sampled, ascending: those that the rule's `sampled` returned."""
    samples: BlockSamples
    """Samples of the block. Entry i belongs to position `sampled[i]`, which by default is `block.masked[i]`."""
    must: bool
    """Whether the `measure` of the block has to decrease."""
    spec: Spec
    """Facts of the model."""

    @property
    def planned(self) -> PlannedPass:
        """The same pass as it was before it ran."""
        return PlannedPass(self.block, self.number, self.limit, self.sequence)

    def of(self, block: Block) -> "BlockPass":
        """Return the same pass of another block, such as the part of a block that an inner rule decodes.

        Args:
            block: A block of positions of `self.block`.
        """
        return self._replace(block=block, number=self.planned.of(block).number)

    def only(self, positions: tuple[int, ...]) -> "BlockPass":
        """Return the pass with the samples of some positions.

        Args:
            positions: Some positions of `sampled`, ascending.
        """
        if positions == self.sampled:
            return self
        samples = self.samples.at([bisect_left(self.sampled, position) for position in positions])
        return self._replace(sampled=positions, samples=samples)


def planned_pass(sequence: SequenceState, block: Block) -> PlannedPass:
    """Return the next forward pass of a block.

    Args:
        sequence: The sequence before the pass.
        block: A block of its window.
    """
    return PlannedPass(block, sequence.steps - block.opened, sequence.request.limit, sequence)


def sampled_pass(
    sequence: SequenceState, block: Block, span: Span, samples: SpanSamples, spec: Spec, must: bool = True
) -> BlockPass:
    """Return the forward pass of a block, with its share of the samples.

    Args:
        sequence: The sequence, which already counts the pass.
        block: A block of its window as it was fed.
        span: The span that ran.
        samples: Samples of the span.
        spec: Facts of the model.
        must: Whether the `measure` of the block has to decrease.
    """
    sampled, own = samples_of(block, span, samples)
    return BlockPass(block, sequence.steps - block.opened - 1, sequence.request.limit, sequence, sampled, own, must, spec)


def samples_of(block: Block, span: Span, samples: SpanSamples) -> tuple[tuple[int, ...], BlockSamples]:
    """Return the positions of a block that a span sampled, and their samples.

    Args:
        block: The block.
        span: The span that ran.
        samples: Samples of the span.
    """
    sampled = span.wanted.sampled
    first = bisect_left(sampled, block.start)
    last = bisect_left(sampled, block.start + len(block.tokens), first)
    # Slicing a whole tuple returns the same tuple, so a block that is alone in its span costs no copy.
    own, tokens, probabilities = sampled[first:last], samples.tokens[first:last], samples.probabilities[first:last]
    noise, best, scored = samples.noise, samples.best_ids, samples.scored_probabilities
    if not (samples.entropies or samples.margins or noise or best or scored):  # most rules: saves 0.6 us
        return own, BlockSamples(tokens, probabilities)
    width, scores = len(best) // len(sampled), len(scored) // len(sampled)
    return own, BlockSamples(
        tokens,
        probabilities,
        samples.entropies[first:last],
        samples.margins[first:last],
        best[first * width : last * width],
        samples.best_probabilities[first * width : last * width],
        noise[first:last],
        scored[first * scores : last * scores],
    )
