"""One forward pass as a rule sees it: a block, its own samples, and what is known about the pass."""

from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import Self

from .block import Block
from .plan import Span, SpanSamples
from .sequence import SequenceState
from .spec import Spec


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPass:
    """A forward pass of a block before it runs."""

    block: Block
    """The block to feed."""
    number: int
    """Number of the pass among those that sample the block, from 0."""
    limit: int
    """First position past the answer; from there on, positions are void."""
    sequence: SequenceState
    """The sequence of the block, for what rules seldom need: its seed, temperature or constraint."""

    def of(self, block: Block) -> Self:
        """Return the same pass of another block, such as the part of a block that an inner rule decodes.

        Args:
            block: A block of positions of `self.block`.
        """
        return replace(self, block=block, number=self.number + self.block.opened - block.opened)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockPass(PlannedPass):
    """A forward pass of a block after it ran. `block` is the block as it was fed, and `sequence` counts the pass."""

    sampled: tuple[int, ...]
    """Positions of the block that the pass sampled, ascending: those that the rule's `sampled` returned."""
    samples: SpanSamples
    """Samples of the block. Entry i belongs to position `sampled[i]`, which by default is `block.masked[i]`."""
    must: bool
    """Whether the `measure` of the block has to decrease."""
    spec: Spec
    """Facts of the model."""

    def only(self, positions: tuple[int, ...]) -> "BlockPass":
        """Return the pass with the samples of some positions.

        Args:
            positions: Some positions of `sampled`, ascending.
        """
        if positions == self.sampled:
            return self
        samples = self.samples.at([bisect_left(self.sampled, position) for position in positions])
        return replace(self, sampled=positions, samples=samples)


def planned_pass(sequence: SequenceState, block: Block) -> PlannedPass:
    """Return the next forward pass of a block.

    Args:
        sequence: The sequence before the pass.
        block: A block of its window.
    """
    return PlannedPass(block=block, number=sequence.steps - block.opened, limit=sequence.request.limit, sequence=sequence)


def sampled_pass(
    sequence: SequenceState, block: Block, span: Span, samples: SpanSamples, spec: Spec, *, must: bool = True
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
    return BlockPass(
        block=block,
        number=sequence.steps - block.opened - 1,
        limit=sequence.request.limit,
        sequence=sequence,
        sampled=sampled,
        samples=own,
        must=must,
        spec=spec,
    )


def samples_of(block: Block, span: Span, samples: SpanSamples) -> tuple[tuple[int, ...], SpanSamples]:
    """Return the positions of a block that a span sampled, and their samples.

    Args:
        block: The block.
        span: The span that ran.
        samples: Samples of the span.
    """
    sampled = span.wanted.sampled
    if block.start <= sampled[0] and sampled[-1] < block.end:  # no other block: this saves a copy
        return sampled, samples
    first, last = bisect_left(sampled, block.start), bisect_left(sampled, block.end)
    return sampled[first:last], samples.between(first, last)
