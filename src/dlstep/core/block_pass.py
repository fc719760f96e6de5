"""A forward pass as a rule sees it: one block, the samples of this block, and facts of the pass.

The classes are named tuples, because each step builds two of them for each block: building a frozen dataclass takes four
times as long.
"""

from bisect import bisect_left
from typing import Any, NamedTuple

from .block import Block
from .plan import Span, SpanSamples
from .sequence import SequenceState
from .spec import Ids, Positions, Probabilities, Spec


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

    @property
    def free(self) -> Positions:
        """Positions of the answer in the block that were not given, ascending."""
        return self.block.sampled(self.limit)

    def of(self, block: Block) -> "PlannedPass":
        """Return the same pass of another block, such as the part of a block that an inner rule decodes.

        Args:
            block: A block of positions of `self.block`.
        """
        return self._replace(block=block, number=self.number + self.block.opened - block.opened)


class BlockSamples(NamedTuple):
    """Samples of a block, one entry per position that the pass sampled. `SpanSamples` describes the fields.

    Each field is sliced from the samples of the span when it is read: most rules read few fields, and slicing all would
    take 1 us per block.
    """

    sampled: Positions
    """Positions that the span sampled."""
    of_span: SpanSamples
    """Samples of the span."""
    first: int
    """Index of the block's first entry."""
    last: int
    """Index after its last entry."""

    @property
    def positions(self) -> Positions:
        """The position of each entry, ascending."""
        return self.sampled[self.first : self.last]

    @property
    def tokens(self) -> Ids:
        """Sampled token ids."""
        return self.of_span.tokens[self.first : self.last]

    @property
    def probabilities(self) -> Probabilities:
        """Probability of each token."""
        return self.of_span.probabilities[self.first : self.last]

    @property
    def entropies(self) -> tuple[float, ...]:
        """Entropies in nats; empty unless requested."""
        return self.of_span.entropies[self.first : self.last]

    @property
    def margins(self) -> tuple[float, ...]:
        """Best minus second-best probability; empty unless requested."""
        return self.of_span.margins[self.first : self.last]

    @property
    def best_ids(self) -> Ids:
        """The `SampleSpec.best` most probable ids of each entry, one entry after the other."""
        return self._of_entries(self.of_span.best_ids)

    @property
    def best_probabilities(self) -> Probabilities:
        """Probabilities of `best_ids`."""
        return self._of_entries(self.of_span.best_probabilities)

    @property
    def noise(self) -> Ids:
        """One uniform random id per entry; empty unless requested."""
        return self.of_span.noise[self.first : self.last]

    @property
    def scored_probabilities(self) -> Probabilities:
        """Probabilities of `Wanted.scored_ids`."""
        return self._of_entries(self.of_span.scored_probabilities)

    def _of_entries(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the block's part of `values`, which has the same number of values for each entry."""
        width = len(values) // (len(self.sampled) or 1)
        return values[self.first * width : self.last * width]


class BlockPass(NamedTuple):
    """A forward pass of a block after it ran."""

    block: Block
    """The block as it was fed."""
    sequence: SequenceState
    """The sequence of the block, which already counts the pass."""
    samples: BlockSamples
    """Samples of the block. Entry i belongs to position `sampled[i]`, which by default is `block.masked[i]`."""
    spec: Spec
    """Facts of the model."""
    must: bool = True
    """Whether the `measure` of the block has to decrease. A `Choice` that does not override `measure` must then unmask
    at least one position. False only in a block after the first open one, if the share of unmasked positions in the block
    before it was below `semi_complete_threshold` when the pass was planned, and `spec.accept_rule` is A."""

    @property
    def number(self) -> int:
        """Number of the pass among those that sample the block, from 0."""
        return self.sequence.steps - self.block.opened - 1

    @property
    def limit(self) -> int:
        """First position past the answer; from there on, positions are void."""
        return self.sequence.request.limit

    @property
    def free(self) -> Positions:
        """Positions of the answer in the block that were not given, ascending."""
        return self.block.sampled(self.limit)

    @property
    def sampled(self) -> Positions:
        """Positions of the block that the pass sampled, ascending: those that the rule's `sampled` returned."""
        return self.samples.positions

    @property
    def planned(self) -> PlannedPass:
        """The same pass as it was before it ran."""
        return PlannedPass(self.block, self.number, self.limit, self.sequence)

    def of(self, block: Block) -> "BlockPass":
        """Return the same pass of another block, such as the part of a block that an inner rule decodes.

        Args:
            block: A block of positions of `self.block`.
        """
        return self._replace(block=block)

    def only(self, positions: Positions) -> "BlockPass":
        """Return the pass with the samples of some positions.

        Args:
            positions: Some positions of `sampled`, ascending.
        """
        sampled = self.sampled
        if positions == sampled:
            return self
        samples = self.samples.of_span.at([self.samples.first + bisect_left(sampled, position) for position in positions])
        return self._replace(samples=BlockSamples(positions, samples, 0, len(positions)))


def planned_pass(sequence: SequenceState, block: Block) -> PlannedPass:
    """Return the next forward pass of a block.

    Args:
        sequence: The sequence before the pass.
        block: A block of its window.
    """
    return PlannedPass(block, sequence.steps - block.opened, sequence.request.limit, sequence)


def samples_of(block: Block, span: Span, samples: SpanSamples) -> BlockSamples:
    """Return the samples of a block.

    Args:
        block: The block.
        span: The span that ran.
        samples: Samples of the span.
    """
    sampled = span.wanted.sampled
    first = bisect_left(sampled, block.start)
    return BlockSamples(sampled, samples, first, bisect_left(sampled, block.start + len(block.tokens), first))
