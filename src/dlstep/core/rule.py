"""A decoding rule: which positions to unmask after each forward pass, and which to remask."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from .block import Block
from .contract import check_chosen
from .options import Options
from .plan import PLAIN, SampleSpec, SpanSamples
from .sequence import SequenceState
from .spec import Spec


@dataclass(frozen=True, slots=True)
class Rule(Options, ABC):
    """A pure function from a block and its rows to the next block. Subclass as a frozen dataclass.

    A strategy may call a rule for several blocks of one forward pass. A rule may keep state in
    `block.extra`, as an `Extra` that does not depend on device contents.
    """

    SAMPLES_MASKED: ClassVar[bool] = True
    """Whether `sampled` and `scored_ids` are inherited: each block samples its masked positions."""

    def __init_subclass__(cls) -> None:
        super(Rule, cls).__init_subclass__()  # `slots=True` makes a second class, in which a bare super() fails
        cls.SAMPLES_MASKED = cls.sampled is Rule.sampled and cls.scored_ids is Rule.scored_ids

    @abstractmethod
    def commit(self, sequence: SequenceState, block: Block, rows: SpanSamples, begin: int, must: bool, spec: Spec) -> Block:
        """Return the block after a forward pass.

        Args:
            sequence: The sequence, which already counts the pass; the number of the pass is
                `draw(sequence, block)`.
            block: The block as it was fed.
            rows: Samples of the span. Row `begin + i` is entry i of the positions from `sampled`.
            begin: First row of the block.
            must: Whether the `measure` of the block has to decrease.
            spec: Facts of the model.
        """

    def sampled(self, block: Block, limit: int, number: int) -> tuple[int, ...]:
        """Return the positions that a forward pass samples: ascending, at least one.

        Args:
            block: The block to feed.
            limit: First position past the answer; from there on, positions are void.
            number: Number of the pass among those that sample the block, from 0.
        """
        del limit, number
        return block.masked

    def scored_ids(self, block: Block, limit: int, number: int) -> tuple[int, ...]:
        """Return the ids whose probabilities a forward pass reports.

        For each position of `sampled` in turn, `sample_spec.scored` ids (-1: no id);
        `SpanSamples.scored_probabilities` has the same order. Called only if `sample_spec.scored`
        is above 0.

        Args:
            block: The block to feed.
            limit: First position past the answer; from there on, positions are void.
            number: Number of the pass among those that sample the block, from 0.
        """
        del block, limit, number
        return ()

    def accepted(self, rows: SpanSamples) -> list[int] | None:
        """Return the rows to unmask in any block, ascending; None if they depend on the block.

        A rule that returns rows promises that `commit` unmasks exactly those of its block, and one
        more only if `must` is true and the block has none. Blockwise strategies then call `commit`
        only in that case. They use this method only for shipped rules.

        Args:
            rows: Samples of the span.
        """
        del rows
        return None

    @property
    def shipped(self) -> bool:
        """Whether this package ships the rule and its inner rules; the core checks all others."""
        return self.SHIPPED

    @property
    def whole(self) -> bool:
        """Whether the whole answer must be one block, which only canvas strategies support."""
        return False

    @property
    def grids(self) -> bool:
        """Whether grid blocks suffice; a rule that looks beyond a block needs a canvas."""
        return not self.whole

    @property
    def windowed(self) -> bool:
        """Whether a rule on the whole answer may feed just the part of the canvas from `fed`."""
        return False

    def opens(self, size: int, answer: int) -> int:
        """Return how many positions a canvas opens as a block.

        Args:
            size: Block size of the canvas.
            answer: Number of positions of the whole answer.
        """
        del answer
        return size

    def ends(self, sequence: SequenceState, block: Block, rows: SpanSamples, size: int) -> int:
        """Return where a canvas block ends, after its first pass; later positions are dropped.

        Args:
            sequence: The sequence, which already counts the pass.
            block: The block as it was fed.
            rows: Samples of the span. Row i is entry i of the block's sampled positions.
            size: Block size of the canvas.
        """
        del sequence, rows, size
        return block.end

    def fed(self, block: Block, since: int) -> tuple[int, int] | None:
        """Return start and end of the positions that a pass between two canvas refreshes feeds.

        None requests a refresh.

        Args:
            block: The block to feed.
            since: Number of positions that the last refresh and the passes after it unmasked.
        """
        del since
        return block.start, block.end

    @property
    def remasks(self) -> bool:
        """Whether unmasked positions may be remasked; then only finished blocks are settled."""
        return False

    def finished(self, block: Block) -> bool:
        """Return whether a full block can no longer change. Called only if `remasks`.

        Args:
            block: A block without masked positions.
        """
        return not block.masked

    @property
    def sample_spec(self) -> SampleSpec:
        """Statistics that the rule needs besides token and probability, and its tie-breaking."""
        return PLAIN

    def measure(self, sequence: SequenceState, block: Block) -> int:
        """Return a bound on the passes the block still needs; every pass with `must` lowers it.

        Args:
            sequence: The sequence of the block.
            block: An unfinished block.
        """
        del sequence
        return len(block.masked)

    def bound(self, size: int) -> int:
        """Return an upper bound on the forward passes of a fresh block.

        Args:
            size: Number of masked positions of the block.
        """
        return size

    def incompatibility(self, spec: Spec) -> str | None:
        """Return why the rule cannot decode such a model; None if it can.

        Args:
            spec: Facts of the model.
        """
        del spec
        return None


@dataclass(frozen=True, slots=True)
class Choice(Rule):
    """A rule that never remasks, and unmasks each position with the token sampled there."""

    @abstractmethod
    def chosen(self, sequence: SequenceState, block: Block, rows: SpanSamples, begin: int, must: bool) -> list[int]:
        """Return the rows to unmask, ascending, at least one if `must`.

        Args:
            sequence: The sequence, which already counts the pass.
            block: The block as it was fed.
            rows: Samples of the span. Row `begin + i` belongs to `block.masked[i]`.
            begin: First row of the block.
            must: Whether the rule has to unmask at least one position.
        """

    def commit(self, sequence: SequenceState, block: Block, rows: SpanSamples, begin: int, must: bool, spec: Spec) -> Block:
        """Return the block with the chosen rows unmasked."""
        del spec
        chosen = self.chosen(sequence, block, rows, begin, must)
        if not self.SHIPPED:
            check_chosen(self, chosen, block, begin, must)
        return block.unmask_rows(chosen, begin, rows.tokens, rows.probabilities) if chosen else block

    def scores(self, sequence: SequenceState, block: Block, rows: SpanSamples, begin: int) -> Sequence[float]:
        """Return the score of each masked position, in order; the rule prefers high scores.

        The default score is the token's probability. Rules that wrap this rule read the scores.

        Args:
            sequence: The sequence, which already counts the pass.
            block: The block as it was fed.
            rows: Samples of the span. Row `begin + i` belongs to `block.masked[i]`.
            begin: First row of the block.
        """
        del sequence
        return rows.probabilities[begin : begin + len(block.masked)]


def draw(sequence: SequenceState, block: Block) -> int:
    """Return the number (from 0) of the pass just counted among those that sampled the block.

    Args:
        sequence: The sequence, which already counts the pass.
        block: A block of its window.
    """
    return sequence.accounting.steps - block.opened - 1


def best(rows: SpanSamples, begin: int, end: int) -> int:
    """Return the row with the most probable token; the first of equal ones.

    Args:
        rows: Samples of a span.
        begin: First row to consider.
        end: First row after those to consider.
    """
    of_block = rows.probabilities[begin:end]
    return begin + of_block.index(max(of_block))
