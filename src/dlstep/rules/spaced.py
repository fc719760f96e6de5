"""Spacing: of the positions that an inner rule chooses, unmask those far enough apart.

Source: Luxembourg et al., "Plan for Speed: Dilated Scheduling for Masked Diffusion Language Models"
(DUS), 2025, arXiv 2506.19037, section 4.4.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from ..core import BlockPass, CanvasRule, Choice, PositiveInt, SampleSpec, check_chosen, check_ranges
from ._shares import highest
from .sliding import check_inner
from .threshold import Threshold


@final
@dataclass(frozen=True, slots=True)
class Spaced(Choice, CanvasRule):
    """A rule that thins out the choice of `inner`: best first, each far from the others.

    The distance is `stride` if all is masked, proportionally less as the block fills, at least two.
    """

    SWEEP = ("accept_threshold", (0.1, 0.3, 0.5, 0.7, 0.9))

    inner: Choice = Threshold()
    """The rule whose choice is thinned out."""
    stride: PositiveInt | None = None
    """The distance of positions unmasked at once in a fully masked block; None: half the block."""

    def __post_init__(self) -> None:
        check_ranges(self)
        check_inner(self, self.inner)

    def chosen(self, block_pass: BlockPass) -> list[int]:
        """Return the indices of the inner rule that keep their distance."""
        chosen = self.inner.chosen(block_pass)
        check_chosen(self.inner, block_pass, chosen)
        if len(chosen) < 2:
            return chosen or highest(block_pass.samples.probabilities, block_pass.must)
        masked, size = block_pass.block.masked, len(block_pass.free)
        gap = max(2, len(masked) * (self.stride or max(size // 2, 1)) // size)
        kept: list[int] = []
        for index in sorted(chosen, key=self.inner.scores(block_pass).__getitem__, reverse=True):
            if all(abs(masked[index] - masked[other]) >= gap for other in kept):
                kept.append(index)
        return sorted(kept)

    def scores(self, block_pass: BlockPass) -> Sequence[float]:
        """Return the scores of the inner rule."""
        return self.inner.scores(block_pass)

    @property
    def sample_spec(self) -> SampleSpec:
        """The statistics of the inner rule."""
        return self.inner.sample_spec

    @property
    def whole(self) -> bool:
        """Whether the inner rule needs the whole answer as one block."""
        return isinstance(self.inner, CanvasRule) and self.inner.whole


RULE = Spaced
