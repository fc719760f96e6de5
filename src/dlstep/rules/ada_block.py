"""Blocks that end with a phrase: a block's first pass looks for a delimiter, like a newline.

A fixed block size cuts sentences and lines. Here a block begins with a pass over the canvas. It
ends after the most probable delimiter among the next positions if that is probable enough,
otherwise after the canvas' `block_size` positions. Source: Lu et al., "AdaBlock-dLLM:
Semantic-Aware Diffusion LLM Inference via Adaptive Block Size", 2025, arXiv 2509.26432.
Differences: the first of equally probable delimiters counts, and any rule may decode the blocks.
"""

from dataclasses import dataclass, replace
from math import floor
from typing import final

from ..core import (
    Block,
    BlockPass,
    CanvasRule,
    Choice,
    Ids,
    PlannedPass,
    Positions,
    Probability,
    Refused,
    SampleSpec,
    Share,
    check_ranges,
    sampled_by,
)
from .sliding import check_inner, inner_commit
from .threshold import Threshold


@final
@dataclass(frozen=True, slots=True)
class AdaBlock(CanvasRule):
    """Chooses where each block ends; the inner rule decodes the block, from its first pass on.

    The first of equally probable delimiters counts.
    """

    SWEEP = ("accept_threshold", (0.5, 0.7, 0.8, 0.9, 0.95))

    delimiters: Ids = (198,)
    """Ids that may end a block (default: newline of LLaDA); empty: all have the block size."""
    delimiter_threshold: Probability = 0.3
    """A delimiter with at least this probability ends the block."""
    look_ahead: Share = 0.25
    """Fraction of the answer's length, after the unmasked positions, to search for a delimiter."""
    inner: Choice = Threshold(inclusive=True)
    """The rule that unmasks positions of the block."""

    def __post_init__(self) -> None:
        check_ranges(self)
        check_inner(self, self.inner)
        if min(self.delimiters, default=0) < 0:
            raise Refused("delimiters", "out_of_range", f"must be ids of tokens, at least 0, got {min(self.delimiters)}")

    @property
    def grids(self) -> bool:
        """False: blocks of a grid have the size that the model was trained on."""
        return False

    @property
    def sample_spec(self) -> SampleSpec:
        """The statistics of the inner rule, and the best id, as the sampled one may differ."""
        spec = self.inner.sample_spec
        return spec if spec.best else replace(spec, best=1)

    def opens(self, size: int, answer: int) -> int:
        """Return the block size of the canvas, or the length of the search if that is larger."""
        return max(size, floor(self.look_ahead * answer))

    def ends(self, block_pass: BlockPass, size: int) -> int:
        """Return the end of the most probable delimiter, or of a block of the canvas' size."""
        block, samples, best = block_pass.block, block_pass.samples, self.sample_spec.best
        answer = block_pass.limit - block_pass.sequence.request.start
        ids, chances = samples.best_ids[::best], samples.best_probabilities[::best]
        searched = range(min(floor(self.look_ahead * answer), len(ids)))
        delimiters = [index for index in searched if ids[index] in self.delimiters]
        end = max(delimiters, key=lambda index: (chances[index], -index), default=None)
        if end is None or chances[end] < self.delimiter_threshold:
            return min(block.start + size, block.end)
        return block.start + end + 1

    def sampled(self, planned: PlannedPass) -> Positions:
        """Return all masked positions for the first pass, then what the inner rule samples."""
        return sampled_by(self.inner, planned) if planned.number else planned.block.masked

    def measure(self, planned: PlannedPass) -> int:
        """Return the number of masked positions, or of all positions before the first pass, which may drop some."""
        return len(planned.block.masked if planned.number else planned.block.tokens)

    def commit(self, block_pass: BlockPass) -> Block:
        """Return the block as the inner rule leaves it; `ends` has already cut the block."""
        return inner_commit(self.inner, block_pass.only(sampled_by(self.inner, block_pass.planned)))


RULE = AdaBlock
