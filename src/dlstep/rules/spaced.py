"""Spacing: of the positions that an inner rule chooses, unmask those far enough apart.

Source: Luxembourg et al., "Plan for Speed: Dilated Scheduling for Masked Diffusion Language Models"
(DUS), 2025, arXiv 2506.19037, section 4.4.
"""

from collections.abc import Sequence as Items
from dataclasses import dataclass
from typing import Annotated, final

from annotated_types import Gt

from ..core import Block, Choice, Rows, Sequence, Spec, Wants, best, check_chosen, check_ranges
from .threshold import Threshold


@final
@dataclass(frozen=True, slots=True)
class Spaced(Choice):
    """A rule that thins out the choice of `inner`: best first, each far from the others.

    The distance is `stride` if all is masked, proportionally less as the block fills, at least two.
    """

    SWEEP = ("accept_threshold", (0.1, 0.3, 0.5, 0.7, 0.9))

    inner: Choice = Threshold()
    """The rule whose choice is thinned out."""
    stride: Annotated[int, Gt(0)] | None = None
    """The distance of positions unmasked at once in a fully masked block; None: half the block."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.inner.revokes:
            raise ValueError(f"Spaced.inner must take positions for good, but {self.inner!r} takes some back: give another")

    def chosen(self, sequence: Sequence, block: Block, rows: Rows, begin: int, must: bool) -> list[int]:
        """Return the rows of the inner rule that keep their distance."""
        chosen = self.inner.chosen(sequence, block, rows, begin, must)
        if not self.inner.shipped:
            check_chosen(self.inner, chosen, block, begin, must)
        if len(chosen) < 2:
            return chosen or ([best(rows, begin, begin + len(block.undecided))] if must else [])
        undecided, size = block.undecided, len(block.sampled(sequence.goal.limit))
        gap = max(2, len(undecided) * (self.stride or max(size // 2, 1)) // size)
        taken: list[int] = []
        kept: list[int] = []
        scores = self.inner.scores(sequence, block, rows, begin)
        for row in sorted(chosen, key=lambda row: scores[row - begin], reverse=True):
            position = undecided[row - begin]
            if all(abs(position - other) >= gap for other in taken):
                taken.append(position)
                kept.append(row)
        return sorted(kept)

    def scores(self, sequence: Sequence, block: Block, rows: Rows, begin: int) -> Items[float]:
        """Return the scores of the inner rule."""
        return self.inner.scores(sequence, block, rows, begin)

    @property
    def wants(self) -> Wants:
        """The statistics of the inner rule."""
        return self.inner.wants

    @property
    def shipped(self) -> bool:
        """Whether this package ships the rule and the inner rule."""
        return self.SHIPPED and self.inner.shipped

    @property
    def whole(self) -> bool:
        """Whether the inner rule needs the whole answer as one block."""
        return self.inner.whole

    def unfit(self, spec: Spec) -> str:
        """Return why the inner rule cannot decode such a model; empty if it can."""
        return self.inner.unfit(spec)


RULE = Spaced
