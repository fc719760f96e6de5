"""Moves that strategies share which revise a block: its tokens may change until the block is sealed.

All answer positions of all open blocks but the pinned ones are sampled in every forward, decided or not. A block is ready
when its rule says so after a forward, and sealed if it is ready in a forward that leaves all blocks before it sealed; until
then it is revised.
"""

from abc import abstractmethod
from dataclasses import dataclass
from itertools import chain

from ..core import Block, Extra, Rows, Sequence, Span, Spec, positions
from ..core.soft import SoftTokens
from ._blocks import Blocks


@dataclass(frozen=True, slots=True)
class Revision(Extra):
    """State of a revised block after its last forward: whether it was `ready`, and which share of its tokens stayed."""

    ready: bool = False
    stable: float = 0.0


NEW = Revision()
PINNED = Revision(ready=True, stable=1.0)  # of a block that opens without gaps


@dataclass(frozen=True, slots=True)
class Revising(Blocks):
    """Blocks whose tokens are revised until they are ready; the rule is `revised`, its state a `Revision` in each block.

    `revised` must make a block ready, without undecided positions, in its forward number `most_forwards` and in each later
    one. `token_stability_threshold` looks at the share of a block's tokens that the last forward did not want changed.
    """

    @property
    @abstractmethod
    def most_forwards(self) -> int:
        """Forwards after which a block is ready in any case."""

    @abstractmethod
    def revised(self, sequence: Sequence, blocks: tuple[Block, ...], rows: Rows, spec: Spec) -> tuple[Block, ...]:
        """The open `blocks` after a forward whose row `i` answers entry `i` of `wanted_of(blocks)`.

        Without pinned tokens, that is position `first_wanted(blocks) + i`.
        """

    def soft(self, blocks: tuple[Block, ...]) -> SoftTokens | None:
        """Soft inputs of the open blocks."""
        del blocks
        return None

    def penalty(self) -> float:
        """The number taken from the logit that a position gives to the token in front of it."""
        return 0.0

    def decided(self, sequence: Sequence, rows: Rows, spec: Spec) -> tuple[Block, ...]:
        """Blocks that are held as they are, then the revised ones."""
        window = sequence.window
        if self.fold_commits:
            return self.revised(sequence, window, rows, spec)
        blocks = tuple(block for block in window if block.start >= sequence.final)
        return window[: len(window) - len(blocks)] + self.revised(sequence, blocks, rows, spec)

    @property
    def holds_pins(self) -> bool:
        """Only what is no pin is sampled and revised."""
        return True

    def stands_to(self, block: Block, limit: int) -> int:
        """All of a ready block, of another one what was given."""
        del limit
        return block.end if revision(block).ready else block.first

    def stable_share(self, block: Block, limit: int) -> float:
        """The share of tokens that stayed; 0 for a block that no forward has sampled."""
        del limit
        return revision(block).stable

    def schedule(self, sequence: Sequence, spec: Spec) -> Span:
        """All open blocks, wanting every position of the answer."""
        del spec
        goal, final, steps = sequence.goal, sequence.final, sequence.ledger.steps
        blocks, joins = (sequence.window, True) if self.fold_commits else self._unsealed(sequence)
        tokens: tuple[int, ...] = ()
        draws: tuple[int, ...] = ()
        for block in blocks:
            held = block.tokens
            tokens += held
            draws += (steps - block.opened,) * len(held)
        stop, request = final + len(tokens), goal.request
        if request.params.pinned:
            wanted = wanted_of(blocks, goal.limit)
            draws = tuple([draws[position - final] for position in wanted])
        else:
            first, end = first_wanted(blocks), min(stop, goal.limit)
            wanted, draws = positions(first, end), draws[first - final : end - final]
        return Span(
            request.id, request.arrival, final, tokens, stop, goal.grid, wanted, draws, request.params, request.seed,
            0, 0, joins, self.soft(blocks), "encode", "none", self.penalty(),
        )  # fmt: skip

    def measure(self, sequence: Sequence) -> int:
        """Forwards that the blocks not sealed may take one after the other, the first of them having used up its age."""
        remaining = -(-(sequence.limit - sequence.final) // self.block_size)
        age = next((sequence.steps - block.opened for block in sequence.window if block.start >= sequence.final), 0)
        return remaining * self.most_forwards - age


def revision(block: Block) -> Revision:
    """State of the block; empty for a new one."""
    if isinstance(block.extra, Revision):
        return block.extra
    return NEW if block.undecided else PINNED


def first_wanted(blocks: tuple[Block, ...]) -> int:
    """The position that the first row of a forward answers; the others follow with no gap but at pinned tokens."""
    return blocks[0].first


def wanted_of(blocks: tuple[Block, ...], limit: int) -> tuple[int, ...]:
    """All positions of the answer in `blocks` that are not pinned."""
    return tuple(chain.from_iterable([block.sampled(limit) for block in blocks]))


def without_gaps(rows: Rows, blocks: tuple[Block, ...], limit: int) -> Rows:
    """The rows as if pinned positions behind the first wanted one were sampled, too: as they are, with probability 1."""
    first, end = first_wanted(blocks), min(blocks[-1].end, limit)
    held = tuple(chain.from_iterable([block.tokens for block in blocks]))
    tokens, probabilities = list(held[first - blocks[0].start : end - blocks[0].start]), [1.0] * (end - first)
    for position, token, probability in zip(wanted_of(blocks, limit), rows.tokens, rows.probabilities, strict=True):
        tokens[position - first], probabilities[position - first] = token, probability
    return Rows(tuple(tokens), tuple(probabilities))
