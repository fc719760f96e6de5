"""Running confidence remasking: fill the block in every pass, then remask the least probable.

Sources: He et al., "MDPO: Overcoming the Training-Inference Divide of Masked Diffusion Language
Models", 2025, arXiv 2508.13148 (RCR); Peng et al., "Path Planning for Masked Diffusion Model
Sampling", 2025, arXiv 2502.03540 (P2: `confidence="current"`, as in Open-dCoder's code). MDPO keeps
confidences for the whole canvas, so a pass may also remask tokens of earlier blocks:
`segment_size`. By default, a block remasks only its own.
"""

from dataclasses import dataclass
from typing import Literal, final

from ..core import Block, BlockPass, CanvasRule, PlannedPass, Positions, PositiveInt
from ._shares import in_parts, remasked


@final
@dataclass(frozen=True, slots=True)
class RunningConfidence(CanvasRule):
    """A rule that fills all masks in each pass and keeps the most probable tokens, by a schedule.

    The share is rounded up; low positions win ties.
    """

    remasks = True
    SWEEP = ("steps_per_block", (1, 2, 3, 4, 8))

    steps_per_block: PositiveInt | None = None
    """Forward passes of a block's or segment's schedule; None: one per position. With more passes
    than positions, some only fill masks again."""
    segment_size: PositiveInt | None = None
    """Positions of a segment: the answer is one block decoded by segments, and tokens of earlier
    segments may be remasked (MDPO); None: each block separately."""
    confidence: Literal["running", "current"] = "running"
    """Probabilities to compare: "running" of each token when it was unmasked, "current" of those that
    the pass samples, at unmasked positions, too, where the token may be another (P2)."""

    @property
    def whole(self) -> bool:
        """True with segments."""
        return self.segment_size is not None

    def sampled(self, planned: PlannedPass) -> Positions:
        """Return all masks up to the end of the current segment; if there are none, all masks.

        With current confidences, unmasked positions too.
        """
        block = planned.block
        if self.segment_size is None and self.confidence == "running":
            return block.masked
        sampled = block.sampled(planned.limit)
        before, size, _ = self._segment(len(sampled), planned.number)
        last = sampled[before + size - 1]
        found = sampled if self.confidence == "current" else block.masked
        return tuple([position for position in found if position <= last]) or block.masked

    def commit(self, block_pass: BlockPass) -> Block:
        """Return the block with the tokens that are kept; after the last pass, all are."""
        block, samples = block_pass.block, block_pass.samples
        start, sampled = block.start, block_pass.free
        before, size, forwards = self._segment(len(sampled), block_pass.number)
        own = block_pass.only(tuple([position for position in block.masked if position <= block_pass.sampled[-1]])).samples
        block = block.unmask_rows(range(len(own.tokens)), own.tokens, own.probabilities)
        kept = before - (-size * forwards // (self.steps_per_block or size))  # rounded up
        found = dict(zip(range(start, block.end), block.probabilities, strict=True))
        if self.confidence == "current":
            found |= zip(block_pass.sampled, samples.probabilities, strict=True)
        falling = sorted(sampled[: before + size], key=found.__getitem__, reverse=True)
        return remasked(block, falling[kept:], block_pass.spec)

    def measure(self, planned: PlannedPass) -> int:
        """Return the number of passes left in the schedule."""
        return max(self.bound(len(planned.free)) - planned.number, 1)

    def bound(self, size: int) -> int:
        """Return the length of the schedule."""
        return in_parts(size, self.segment_size or size, self._forwards)

    def _forwards(self, size: int) -> int:
        """Return the number of passes after which all of `size` positions are kept."""
        return (size - 1) * (self.steps_per_block or size) // size + 1

    def _segment(self, size: int, number: int) -> tuple[int, int, int]:
        """Return the positions before and in pass `number`'s segment, and its passes so far."""
        segment = min(self.segment_size or size, size)
        before = min(number // self._forwards(segment), (size - 1) // segment)
        own = min(segment, size - before * segment)
        return before * segment, own, min(number - before * self._forwards(segment) + 1, self._forwards(own))


RULE = RunningConfidence
