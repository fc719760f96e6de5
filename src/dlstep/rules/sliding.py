"""Sliding windows: a fixed number of undecided positions is always on offer, so that no block has a hard end.

The last positions of a block are decided before anything is known of those right behind them. A window that begins with the
first undecided position, and grows by as many positions as were decided, has no such end. With a cache, forwards between two
refreshes feed the window alone.

Sources: Shu et al., "Deferred Commitment Decoding for Diffusion Language Models with Confidence-Aware Sliding Windows", 2026,
arXiv 2601.02076 (DCD); Luo et al., "DSB: Dynamic Sliding Block Scheduling for Diffusion LLMs", 2026, arXiv 2602.05992.
Different here: DCD's code fills all positions behind an end-of-sequence token at once. Here they stay on offer, and the answer
ends when all positions in front of that token are decided, as with any other rule. Its `delay` counts from where the window
began one forward before, and applies behind the window, too; here `window_delay` counts from where the window begins.
"""

from dataclasses import dataclass
from typing import Annotated, final

from annotated_types import Ge, Gt

from ..core import Block, Choice, Rows, Rule, Sequence, Spec, Wants, check_ranges
from .threshold import Threshold


@final
@dataclass(frozen=True, slots=True)
class Sliding(Rule):
    """Offers the first `window` undecided positions of the whole answer to another rule, for which they are a block.

    The window reaches from the first undecided position to the end of the last one on offer. To the other rule, what is
    decided in it counts as given; its memory and its count of forwards go on from window to window.
    """

    SWEEP = ("window", (2, 4, 8, 16, 32))

    window: Annotated[int, Gt(0)] = 32
    """Undecided positions on offer in each forward."""
    max_window: Annotated[int, Gt(0)] | None = None
    """Positions that the window spans at most, decided ones included; None: as many as it takes."""
    refresh_count: Annotated[int, Gt(0)] = 16
    """With a cache: the canvas is fed again once so many positions were decided by the last such forward and after it."""
    window_delay: Annotated[int, Ge(0)] = 0
    """With a cache: positions of the answer in front of the window that are fed with it."""
    inner: Choice = Threshold(inclusive=True)
    """The rule that decides positions of the window."""

    def __post_init__(self) -> None:
        check_ranges(self)
        check_inner(self, self.inner)

    @property
    def whole(self) -> bool:
        """The window moves over the whole answer."""
        return True

    @property
    def windowed(self) -> bool:
        """The window can be fed alone."""
        return True

    @property
    def wants(self) -> Wants:
        """The statistics of the inner rule."""
        return self.inner.wants

    def unfit(self, spec: Spec) -> str:
        """Models that the other rule cannot decode."""
        return self.inner.unfit(spec)

    def wanted(self, block: Block, limit: int, number: int) -> tuple[int, ...]:
        """The positions that the inner rule wants of the window."""
        return self.inner.wanted(self._window(block), limit, number)

    def decided(self, sequence: Sequence, block: Block, rows: Rows, begin: int, must: bool, spec: Spec) -> Block:
        """The block with what the other rule decided in the window."""
        return block.with_part(self.inner.decided(sequence, self._window(block), rows, begin, must, spec))

    def fed(self, block: Block, since: int) -> tuple[int, int] | None:
        """The window and what is in front of it, until a refresh is due."""
        if since >= self.refresh_count:
            return None
        return max(block.undecided[0] - self.window_delay, block.start), self._end(block)

    def _end(self, block: Block) -> int:
        """First position behind the window."""
        end = min(block.end, block.end + self.window - len(block.undecided))
        return end if self.max_window is None else min(end, block.undecided[0] + self.max_window)

    def _window(self, block: Block) -> Block:
        return block.part(block.undecided[0], self._end(block), block.opened, anew=True)


def check_inner(owner: Rule, inner: Rule) -> None:
    """Raise ValueError for a rule that needs more than a block."""
    if not inner.grids:
        raise ValueError(f"{type(owner).__name__}.inner must be a rule for blocks, and {type(inner).__name__} needs a canvas")


RULE = Sliding
