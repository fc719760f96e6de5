"""Operations shared by strategies that revise blocks: tokens may change until their block is sealed.

Every pass samples all answer positions of all open blocks, masked or not, except pinned ones. After each
pass, the strategy decides whether a block is ready. A ready block is sealed once all earlier blocks
are; until then, passes continue to revise it.
"""

from abc import abstractmethod
from dataclasses import dataclass
from itertools import chain

from ..core import Block, Extra, Positions, SequenceState, Span, SpanSamples
from ..core.filtering import passes_left, passes_to_come
from ._blocks import Blocks


@dataclass(frozen=True, slots=True)
class Revision(Extra):
    """State of a revised block: whether it is `ready`, and the share of tokens that the last pass kept."""

    ready: bool = False
    stable: float = 0.0


NEW = Revision()
PINNED = Revision(ready=True, stable=1.0)  # of a block without masks when it opens


@dataclass(frozen=True, slots=True)
class Revising(Blocks):
    """Blocks whose tokens are revised until they are ready; each keeps a `Revision` as state.

    After at most `most_forwards` passes, `next_blocks` must have made a block ready, without masks. If a
    constraint drops tokens of the block in the last of these passes, `next_blocks` must fill at least
    one mask of the first block in each further pass, and remask none. Without pinned tokens, entry i of the
    samples belongs to position `window[0].first + i`.

    `token_stability_threshold` is compared with the share of tokens that the last pass kept.
    """

    holds_pins = True

    @property
    @abstractmethod
    def most_forwards(self) -> int:
        """The number of passes after which a block is ready in any case."""

    def settled_end(self, block: Block) -> int:
        """Return the end of a ready block, otherwise the end of its leading given tokens."""
        return block.end if revision(block).ready else block.first

    def stable_share(self, block: Block) -> float:
        """Return the share of tokens that the last pass kept; 0 for a block not yet sampled."""
        return revision(block).stable

    def sampled(self, sequence: SequenceState, block: Block) -> Positions:
        """Return every position of the answer in the block that was not given."""
        return block.sampled(sequence.request.limit)

    def measure(self, sequence: SequenceState) -> int:
        """Return an upper bound: `most_forwards` passes for each block that is not final, less those that the first one had."""
        window, final, most = sequence.progress.window, sequence.progress.final, self.most_forwards
        remaining = -(-(sequence.request.limit - final) // self.block_size)
        if not window:
            return passes_to_come(sequence, remaining * most, sequence.request.limit - final)
        first = window[0]
        # A fork may allow fewer passes than the block has had.
        return passes_left(sequence, first, max(1, first.opened + most - sequence.steps), remasks=True) + passes_to_come(
            sequence, (remaining - 1) * most, max(0, sequence.request.limit - first.end)
        )


def revision(block: Block) -> Revision:
    """Return the state of the block; an initial one for a new block."""
    if isinstance(block.extra, Revision):
        return block.extra
    return NEW if block.masked else PINNED


def without_gaps(samples: SpanSamples, span: Span, blocks: tuple[Block, ...], limit: int) -> SpanSamples:
    """Return the samples with added entries for pinned positions: their token, with probability 1."""
    first, end = blocks[0].first, min(blocks[-1].end, limit)
    held = tuple(chain.from_iterable([block.tokens for block in blocks]))
    tokens, probabilities = list(held[first - blocks[0].start : end - blocks[0].start]), [1.0] * (end - first)
    for position, token, probability in zip(span.wanted.sampled, samples.tokens, samples.probabilities, strict=True):
        tokens[position - first], probabilities[position - first] = token, probability
    return SpanSamples(tuple(tokens), tuple(probabilities))
