"""Sliding windows: the inner rule always sees a fixed number of masked positions.

The last positions of a fixed block are unmasked before anything is known about the next ones. A
window that starts at the first masked position, and grows by as many positions as were unmasked,
avoids this. With a cache, passes between two refreshes feed only the window.

Sources: Shu et al., "Deferred Commitment Decoding for Diffusion Language Models with
Confidence-Aware Sliding Windows", 2026, arXiv 2601.02076 (DCD); Luo et al., "DSB: Dynamic Sliding
Block Scheduling for Diffusion LLMs", 2026, arXiv 2602.05992. DCD's code fills all positions after
an end of sequence at once; here the answer ends when all positions before it are unmasked. DCD's
`delay` counts from where the window began one forward pass before, and also applies after the
window; `window_delay` counts from where the window begins now.
"""

from dataclasses import dataclass
from typing import final

from ..core import (
    Block,
    BlockPass,
    CanvasRule,
    Choice,
    NonNegativeInt,
    PlannedPass,
    Positions,
    PositiveInt,
    Refused,
    Rule,
    SampleSpec,
    check_committed,
    check_ranges,
    needs_canvas,
    options_of,
    sampled_by,
)
from ._shares import highest
from .threshold import Threshold


@final
@dataclass(frozen=True, slots=True)
class Sliding(CanvasRule):
    """A rule that presents the first `window` masked positions to an inner rule as a block.

    Other positions between them count as given. The inner rule's state and pass count continue from
    window to window.
    """

    windowed = True
    whole = True
    SWEEP = ("window", (2, 4, 8, 16, 32))

    window: PositiveInt = 32
    """Masked positions in the window."""
    max_window: PositiveInt | None = None
    """Maximum length of the window, including unmasked positions; None: unlimited."""
    refresh_count: PositiveInt = 16
    """With a cache: refresh the canvas after this many unmasked positions."""
    window_delay: NonNegativeInt = 0
    """With a cache: positions of the answer before the window that are fed with it."""
    inner: Choice = Threshold(inclusive=True)
    """The rule that unmasks positions of the window."""

    def __post_init__(self) -> None:
        check_ranges(self)
        check_inner(self, self.inner)

    @property
    def sample_spec(self) -> SampleSpec:
        """The statistics of the inner rule."""
        return self.inner.sample_spec

    def sampled(self, planned: PlannedPass) -> Positions:
        """Return the positions of the window that the inner rule samples."""
        return sampled_by(self.inner, planned.of(self._window(planned.block)))

    def commit(self, block_pass: BlockPass) -> Block:
        """Return the block with the inner rule's changes to the window."""
        block = block_pass.block
        return block.with_part(inner_commit(self.inner, block_pass.of(self._window(block))))

    def fed(self, block: Block, since: int) -> tuple[int, int] | None:
        """Return start and end of the window with the positions fed before it; None if a refresh is due."""
        if since >= self.refresh_count:
            return None
        return max(block.masked[0] - self.window_delay, block.start), self._end(block)

    def _end(self, block: Block) -> int:
        """Return the first position after the window."""
        end = min(block.end, block.end + self.window - len(block.masked))
        return end if self.max_window is None else min(end, block.masked[0] + self.max_window)

    def _window(self, block: Block) -> Block:
        return block.part(block.masked[0], self._end(block), block.opened, restart=True)


def check_inner(owner: Rule, inner: Rule) -> None:
    """Raise ValueError for an inner rule that may remask, or needs a canvas where it gets parts of one.

    Rules inside `inner`, at any depth, are checked too, because it may pass its blocks to them.
    """
    if inner.remasks:
        raise Refused(
            "inner", "unsupported", f"it must never remask, but {inner!r} does: give another rule, or options without remasking"
        )
    if needs_canvas(inner) and not isinstance(owner, Choice):  # a `Choice` passes its own block to the inner rule
        raise Refused("inner", "unsupported", f"it must be a rule for blocks, and {type(inner).__name__} needs a canvas")
    for part in options_of(inner).values():
        if isinstance(part, Rule):
            check_inner(owner, part)


def inner_commit(inner: Rule, block_pass: BlockPass) -> Block:
    """Return the block after the inner rule's `commit`. If it unmasked no position although `must`, unmask the best one.

    A rule that defines `measure`, such as `Dilated`, need not unmask a position in every pass.
    """
    after, samples = inner.commit(block_pass), block_pass.samples
    check_committed(inner, block_pass, after)
    if block_pass.must and len(after.masked) == len(block_pass.block.masked):
        return after.unmask_rows(highest(samples.probabilities, 1), samples.tokens, samples.probabilities)
    return after


RULE = Sliding
