"""Spacing: of the positions that an inner rule chooses, unmask those far enough apart.

Source: Luxembourg et al., "Plan for Speed: Dilated Scheduling for Masked Diffusion Language Models"
(DUS), 2025, arXiv 2506.19037, section 4.4.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, final

from annotated_types import Gt

from ..core import Block, CanvasRule, Choice, SampleSpec, SequenceState, SpanSamples, best, check_ranges, chosen_by
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
    stride: Annotated[int, Gt(0)] | None = None
    """The distance of positions unmasked at once in a fully masked block; None: half the block."""

    def __post_init__(self) -> None:
        check_ranges(self)
        check_inner(self, self.inner)

    def chosen(self, sequence: SequenceState, block: Block, rows: SpanSamples, begin: int, must: bool) -> list[int]:
        """Return the rows of the inner rule that keep their distance."""
        chosen = chosen_by(self.inner, sequence, block, rows, begin, must)
        if len(chosen) < 2:
            return chosen or ([best(rows, begin, begin + len(block.masked))] if must else [])
        masked, size = block.masked, len(block.sampled(sequence.request.limit))
        gap = max(2, len(masked) * (self.stride or max(size // 2, 1)) // size)
        kept_positions: list[int] = []
        kept: list[int] = []
        scores = self.inner.scores(sequence, block, rows, begin)
        for row in sorted(chosen, key=lambda row: scores[row - begin], reverse=True):
            position = masked[row - begin]
            if all(abs(position - other) >= gap for other in kept_positions):
                kept_positions.append(position)
                kept.append(row)
        return sorted(kept)

    def scores(self, sequence: SequenceState, block: Block, rows: SpanSamples, begin: int) -> Sequence[float]:
        """Return the scores of the inner rule."""
        return self.inner.scores(sequence, block, rows, begin)

    @property
    def sample_spec(self) -> SampleSpec:
        """The statistics of the inner rule."""
        return self.inner.sample_spec

    @property
    def whole(self) -> bool:
        """Whether the inner rule needs the whole answer as one block."""
        return isinstance(self.inner, CanvasRule) and self.inner.whole


RULE = Spaced
