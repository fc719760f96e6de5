"""A decoding rule: which positions of a block to take after a forward, and which to take back. Carriers feed it."""

from abc import ABC, abstractmethod
from collections.abc import Sequence as Items
from dataclasses import dataclass
from typing import ClassVar

from .block import Block
from .contract import check_chosen
from .options import Options
from .plan import PLAIN, Rows, Wants
from .sequence import Sequence
from .spec import Spec


@dataclass(frozen=True, slots=True)
class Rule(Options, ABC):
    """Turns a block and the rows of a forward into the block after it. A concrete rule is a final frozen dataclass.

    Pure, and a carrier may call it for several blocks of one forward. What it remembers of a block is an `Extra` in
    `block.extra`, which must be true without a device.
    """

    SAMPLES_MASKED: ClassVar[bool] = True
    """Whether the class overrides neither `wanted` nor `named`, so each block samples just its masked positions."""

    def __init_subclass__(cls) -> None:
        super(Rule, cls).__init_subclass__()  # `slots=True` makes a second class, in which a bare super() fails
        cls.SAMPLES_MASKED = cls.wanted is Rule.wanted and cls.named is Rule.named

    @abstractmethod
    def decided(self, sequence: Sequence, block: Block, rows: Rows, begin: int, must: bool, spec: Spec) -> Block:
        """The block after a forward; row `begin + i` of `rows` answers entry i of the block's wanted positions.

        The forward counts in `sequence` already; `draw(sequence, block)` is its number for this block. `must` says that
        `measure` of the block must fall: nothing else would end the decode.
        """

    def wanted(self, block: Block, limit: int, number: int) -> tuple[int, ...]:
        """The positions that forward `number` of the unfinished block samples, ascending; at least one.

        `number` counts from 0, positions at `limit` and above are void.
        """
        del limit, number
        return block.undecided

    def named(self, block: Block, limit: int, number: int) -> tuple[int, ...]:
        """The ids whose probabilities forward `number` reports: `wants.named` for each position of `wanted`, -1 is none.

        They stand one position after the other; `Rows.named_probabilities` answers in the same order. Asked only of a rule
        whose `wants.named` is above 0.
        """
        del block, limit, number
        return ()

    def accepted(self, rows: Rows) -> list[int] | None:
        """Return the rows that this rule unmasks whatever block they belong to, ascending; None if that depends on the block.

        A rule that returns rows promises that `decided` unmasks exactly those of its block, and one more only if `must` is true
        and the block has none. Blockwise strategies then call `decided` only in that last case. They use this method of shipped
        rules alone.
        """
        del rows
        return None

    @property
    def shipped(self) -> bool:
        """Whether this package ships the rule, and all rules that it holds; the core checks what others answer."""
        return self.SHIPPED

    @property
    def whole(self) -> bool:
        """Whether the answer must be a single block, which a canvas alone can offer."""
        return False

    @property
    def grids(self) -> bool:
        """Whether the blocks of a grid will do; a rule that looks beyond them needs a canvas."""
        return not self.whole

    @property
    def windowed(self) -> bool:
        """Whether a rule that looks at the whole answer may feed a part of the canvas, the one that `fed` names."""
        return False

    def opens(self, size: int, answer: int) -> int:
        """How many positions a canvas opens as a block, where blocks have `size` and the answer has `answer` positions."""
        del answer
        return size

    def ends(self, sequence: Sequence, block: Block, rows: Rows, size: int) -> int:
        """Where a block of a canvas ends, asked behind its first forward; what lies behind the end is given back.

        Row i answers entry i of the block's wanted positions; `size` is that of the canvas' blocks.
        """
        del sequence, rows, size
        return block.end

    def fed(self, block: Block, since: int) -> tuple[int, int] | None:
        """First and last but one position that a forward between two refreshes of a canvas feeds; None: a refresh is due.

        `since` counts the positions of the block that were decided by the last refresh and after it.
        """
        del since
        return block.start, block.end

    @property
    def revokes(self) -> bool:
        """Whether decided positions may become masks again; a block is then settled when it is finished, not before."""
        return False

    def finished(self, block: Block) -> bool:
        """Whether nothing of the block changes any more. Asked only of a rule that revokes, and of full blocks."""
        return not block.undecided

    @property
    def wants(self) -> Wants:
        """Statistics that the rule reads beside token and probability, and how ties are broken."""
        return PLAIN

    def measure(self, sequence: Sequence, block: Block) -> int:
        """The most forwards that an unfinished block may still take; it never grows, and falls where `must` holds."""
        del sequence
        return len(block.undecided)

    def bound(self, size: int) -> int:
        """The most forwards that a block of `size` undecided positions takes."""
        return size

    def unfit(self, spec: Spec) -> str:
        """Why no model like this can be decoded by the rule, in words; empty if it can."""
        del spec
        return ""


@dataclass(frozen=True, slots=True)
class Choice(Rule):
    """A rule that takes positions for good, each with the token that was sampled there."""

    @abstractmethod
    def chosen(self, sequence: Sequence, block: Block, rows: Rows, begin: int, must: bool) -> list[int]:
        """The rows that the block takes, ascending, at least one if `must`; row `begin + i` answers `block.undecided[i]`."""

    def decided(self, sequence: Sequence, block: Block, rows: Rows, begin: int, must: bool, spec: Spec) -> Block:
        """The block with what was chosen."""
        del spec
        chosen = self.chosen(sequence, block, rows, begin, must)
        if not self.SHIPPED:
            check_chosen(self, chosen, block, begin, must)
        return block.decide(chosen, begin, rows.tokens, rows.probabilities) if chosen else block

    def scores(self, sequence: Sequence, block: Block, rows: Rows, begin: int) -> Items[float]:
        """Return the number by which this rule ranks each undecided position, in order; it prefers large numbers.

        Entry i belongs to row `begin + i`. By default, it is the probability of the token. A rule that wraps this one reads it.
        """
        del sequence
        return rows.probabilities[begin : begin + len(block.undecided)]


def draw(sequence: Sequence, block: Block) -> int:
    """The number of the forward that `sequence` has just counted among those that sampled the block, from 0 on."""
    return sequence.ledger.steps - block.opened - 1


def best(rows: Rows, begin: int, end: int) -> int:
    """The row of `[begin, end)` with the most probable token, of equally probable ones the first."""
    of_block = rows.probabilities[begin:end]
    return begin + of_block.index(max(of_block))
