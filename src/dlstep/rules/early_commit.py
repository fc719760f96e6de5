"""Early commit: unmask everything at once when the gap between the two best tokens is wide enough.

The answer is often stable long before the last pass. Until the gap is wide enough, each pass
unmasks its share of one part of the answer, as in LLaDA. Source: Li et al., "Diffusion Language
Model Knows the Answer Before It Decodes", 2025, arXiv 2508.19982 (Prophet), whose thresholds fall
in three steps. Differences: Prophet's code measures the gap over the five positions after a place
where its tasks force the answer to begin, and otherwise never ends early. Here `region` sets the
positions (default: all). SchED's smooth schedules (arXiv 2512.02892) are left out, because their
exact shapes could not be checked.
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace
from math import fsum, inf, log
from operator import truediv
from typing import Annotated, final

from annotated_types import Interval

from ..core import (
    Block,
    BlockPass,
    BlockSamples,
    CanvasRule,
    Extra,
    PlannedPass,
    Positions,
    PositiveInt,
    Refused,
    SampleSpec,
    check_ranges,
)
from ._shares import in_parts
from .quota import Quota

BEST = 2  # the gap needs two; no schedule needs any
Gap = Annotated[float, Interval(ge=0.0, le=1e6)]


@final
@dataclass(frozen=True, slots=True)
class PartTurn(Extra):
    """The part being decoded: its first position, and the number of sampling passes before its first one."""

    start: int
    opened: int


@final
@dataclass(frozen=True, slots=True)
class EarlyCommit(CanvasRule):
    """A rule that unmasks by a schedule, and everything once the mean gap is wide enough.

    A gap is the difference of the two largest logits. The threshold depends on the fraction of the
    schedule's passes done, the current one included. Parts are decoded from left to right.
    """

    whole = True  # an early end unmasks the whole answer at once
    SWEEP = ("early_gap", (7.5, 8.0, 9.0, 10.0, 12.0))

    early_gap: Gap | None = 7.5
    """Mean gap that ends decoding during the first 33 % of all passes; None: no early end there."""
    middle_gap: Gap | None = 5.0
    """The same between 33 % and 67 %."""
    late_gap: Gap | None = 2.5
    """The same from 67 % on."""
    region: Positions = ()
    """Offset and length of the answer positions whose gaps count; empty: the whole answer."""
    part_size: PositiveInt = 32
    """Positions of a part; the next part begins when it is full."""
    inner: Quota = Quota()
    """The schedule of each part."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.region and (len(self.region) != 2 or self.region[0] < 0 or self.region[1] < 1):
            raise Refused(
                "region", "invalid_value", f"must be an offset and a length, such as (12, 5), or empty, got {self.region}"
            )

    @property
    def sample_spec(self) -> SampleSpec:
        """The statistics of the schedule, and the two best probabilities, which give the gap."""
        return replace(self.inner.sample_spec, best=BEST, tempered=False)

    def sampled(self, planned: PlannedPass) -> Positions:
        """Return all masked positions, and those of the region."""
        region, masked = self._region(planned), planned.block.masked
        if not self.region or not region:
            return masked if self.region else region
        first, last = bisect_left(masked, region[0]), bisect_right(masked, region[-1])
        return masked[:first] + region + masked[last:]

    def commit(self, block_pass: BlockPass) -> Block:
        """Return the block with everything unmasked, or with the current part's share."""
        block, region = block_pass.block, self._region(block_pass.planned)
        gap = self.due((block_pass.number + 1) / self.bound(len(block.tokens)))
        forced = block_pass.sequence.request.constraint is not None
        if gap is not None and _gap(block_pass.only(region).samples, forced=forced) >= gap:
            samples = block_pass.only(block.masked).samples
            return block.unmask_rows(range(len(block.masked)), samples.tokens, samples.probabilities)
        part = self._part(block_pass.planned)
        return block.with_part(self.inner.commit(block_pass.of(part).only(part.masked)))

    def measure(self, planned: PlannedPass) -> int:
        """Return the number of passes that the current part has left, and those of later parts."""
        part = self._part(planned)
        return self.inner.measure(planned.of(part)) + self.bound(planned.block.end - part.end)

    def bound(self, size: int) -> int:
        """Return the number of passes that the schedule takes for all parts."""
        return in_parts(size, self.part_size, self.inner.bound)

    def due(self, progress: float) -> float | None:
        """Return the mean gap that ends decoding; None if no gap does.

        Args:
            progress: Share of the schedule that has run, the current pass included.
        """
        if progress < 0.33:
            return self.early_gap
        return self.middle_gap if progress < 0.67 else self.late_gap

    def _part(self, planned: PlannedPass) -> Block:
        """Return the part that a pass decodes; its schedule starts with its first pass."""
        block = planned.block
        start = block.masked[0] - (block.masked[0] - block.start) % self.part_size
        turn = block.extra
        if not isinstance(turn, PartTurn) or turn.start != start:
            turn = PartTurn(start, block.opened + planned.number)
        return block.with_extra(turn).part(start, min(start + self.part_size, block.end), turn.opened)

    def _region(self, planned: PlannedPass) -> Positions:
        sampled = planned.free
        return sampled[self.region[0] : sum(self.region)] if self.region else sampled


def _gap(region: BlockSamples, *, forced: bool) -> float:
    """Return the mean gap of the region; minus infinity if the answer ends before it.

    If a constraint may have `forced` tokens, positions with a single possible token are left out, because
    their gap does not show that the answer is stable. If no position is left, the gap is minus infinity.
    """
    one, two = region.best_probabilities[::BEST], region.best_probabilities[1::BEST]
    if not one:
        return -inf
    if forced:
        one, two = tuple([first for first, second in zip(one, two, strict=True) if second]), tuple(filter(None, two))
        if not two:
            return -inf
    return fsum(map(log, map(truediv, one, two))) / len(one) if all(two) else inf


RULE = EarlyCommit
