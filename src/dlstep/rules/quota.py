"""Fixed schedules: each pass unmasks its share of a block, in a given order.

Sources: Nie et al., "Large Language Diffusion Models" (LLaDA), 2025, arXiv 2502.09992 (even shares;
`confidence`, `random`); Ye et al., "Dream 7B", 2025, arXiv 2508.15487 (one schedule over the whole
answer; `margin`, `entropy`, `independent`, random noise in the order); Cheng et al., "SDAR", 2025,
arXiv 2510.06303 (`left`, shares with a threshold).

LLaDA and Dream leave ties open; here the lowest position comes first. Dream's passes that unmask
nothing are skipped, which changes no greedy answer. In LLaDA's code, the option to unmask ends of
sequence last misses some at temperatures above 0, and removes them from the softmax that ranks
other positions. SDAR's code shares out the whole block even if the prompt ends inside it.
`docs/published_code.md` measures the last two.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, log
from operator import neg
from typing import Annotated, Literal, final

from annotated_types import Interval

from ..core import (
    PLAIN,
    BlockPass,
    CanvasRule,
    Choice,
    PlannedPass,
    PositiveInt,
    Probability,
    Refused,
    SampleSpec,
    check_ranges,
)
from ..core.draws import below, integers
from ._shares import SAMPLE_SPECS, highest, length, scores_by, share

Order = Literal["confidence", "margin", "entropy", "random", "left", "independent"]
LAST = 0.001  # Dream's schedule ends with this fraction of masks
_LAST_SCORE = float("-inf")


def hazard(forward: int, forwards: int) -> float:
    """Return the fraction of the masks that pass `forward` of Dream's schedule unmasks."""
    masked, after = (1 + count * (LAST - 1) / forwards for count in (forward, forward + 1))
    return 1 - after / masked


@lru_cache(maxsize=1024)
def dream_shares(size: int, forwards: int) -> tuple[int, ...]:
    """Return how many of `size` positions Dream's non-empty passes unmask."""
    left, forward, shares = size, 0, list[int]()
    while left:
        # Skip passes that would unmask less than one position each.
        forward = max(forward, min(ceil(forwards / (1 - LAST)) - left - 2, forwards - 1))
        count = left if forward >= forwards - 1 else int(left * hazard(forward, forwards))
        if count:
            shares.append(count)
        left, forward = left - count, forward + 1
    return tuple(shares)


def _numbers(block_pass: BlockPass) -> list[float]:
    """Return a uniform number in (0, 1) for each masked position."""
    block, seed = block_pass.block, block_pass.sequence.request.seed
    start = block.start
    # `integers` is cached, as all requests draw for the same positions.
    drawn = integers(seed, start, block.end, block_pass.number, "choose", 1 << 23)
    return [(drawn[position - start] + 0.5) * 2.0**-23 for position in block.masked]


@final
@dataclass(frozen=True, slots=True)
class Quota(Choice, CanvasRule):
    """A rule that unmasks a share of a block in each of `steps_per_block` passes, in an order.

    Ties go to the lowest position. Shares are of the positions that were not given when the block
    opened; the remainder of even shares goes to the first passes.
    """

    SWEEP = ("steps_per_block", (1, 2, 3, 4, 8))

    steps_per_block: PositiveInt | None = None
    """Forward passes per block; None: one per position."""
    schedule: Literal["even", "dream"] = "even"
    """Even shares, or Dream's, which cover the whole answer and need a canvas without a cache."""
    order: Order = "confidence"
    """Which positions come first: probable tokens, large margins, small entropies, random ones
    or those on the left; independent: one random draw per position (Dream's schedule only)."""
    order_temperature: Annotated[float, Interval(ge=1e-6, lt=float("inf"))] | None = None
    """Sample positions in proportion to exp(score / this); None: take the first ones."""
    dynamic_threshold: Probability | None = None
    """Unmask all with a probability above this if they are at least a pass's share (SDAR)."""
    eos_last: bool = False
    """Unmask tokens that end the answer after all others of the block."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.order == "independent" and self.schedule != "dream":
            raise Refused("order", "conflict", "'independent' needs the chances of Dream's schedule: give schedule='dream'")
        if self.order_temperature is not None and self.order in ("random", "left", "independent"):
            raise Refused(
                "order_temperature",
                "conflict",
                f"{self.order_temperature} has no effect with order={self.order!r}: give order='confidence', 'margin' or "
                "'entropy', or no temperature",
            )
        if self.dynamic_threshold is not None and self.schedule == "dream":
            raise Refused(
                "dynamic_threshold",
                "conflict",
                f"{self.dynamic_threshold} does not go with schedule='dream': give schedule='even'",
            )
        if self.eos_last and self.order == "independent":
            raise Refused("eos_last", "conflict", "it has no effect with order='independent': give another order")

    def chosen(self, block_pass: BlockPass) -> list[int]:
        """Return the first indices of the order, as many as this pass's share."""
        block, number = block_pass.block, block_pass.number
        size = len(block_pass.free)
        if self.order == "independent":
            return self._independent(block_pass, size)
        if self.schedule == "dream" and block_pass.sequence.request.constraint is not None:
            due = self._behind(size, number, len(block.masked))
        else:
            due = self._due(size, number)
        scores = self.scores(block_pass)
        if (above := self.dynamic_threshold) is not None:
            pairs = enumerate(zip(block_pass.samples.probabilities, scores, strict=True))
            sure = [index for index, (probability, score) in pairs if probability > above and score != _LAST_SCORE]
            if len(sure) >= due:
                return sure
        return highest(scores, due)

    @property
    def whole(self) -> bool:
        """True with Dream's schedule."""
        return self.schedule == "dream"

    @property
    def sample_spec(self) -> SampleSpec:
        """The statistic that defines the order."""
        return SAMPLE_SPECS.get(self.order, PLAIN)

    def measure(self, planned: PlannedPass) -> int:
        """Return the passes left, at most one per masked position unless independent."""
        size, masked, number = len(planned.free), len(planned.block.masked), planned.number
        left = self.bound(size) - number
        if self.order == "independent":
            return max(left, 1)
        # A fork may give the rule a block of which another rule has unmasked less than the schedule says. Under a
        # constraint, which may drop tokens, the core itself counts the masked positions.
        due = sum(self._due(size, later) for later in range(number, number + max(left, 0)))
        if masked > due and planned.sequence.request.constraint is None:
            left = masked if self.schedule == "even" else left + 1
        return max(min(left, masked), 1)

    def bound(self, size: int) -> int:
        """Return the number of passes of the schedule."""
        if self.order == "independent":
            return self.steps_per_block or size
        if self.schedule == "dream":
            return len(dream_shares(size, self.steps_per_block or size))
        return length(size, self.steps_per_block)

    def _due(self, size: int, number: int) -> int:
        """Return how many positions pass `number` of a block unmasks."""
        if self.schedule == "dream":
            shares = dream_shares(size, self.steps_per_block or size)
            return shares[max(number, 0)] if number < len(shares) else size  # a part may have its turn early: others are pinned
        return share(size, self.steps_per_block, number)

    def _behind(self, size: int, number: int, masked: int) -> int:
        """Return how many positions to unmask to catch up with Dream's schedule after pass `number`, at least 1.

        A constraint may have dropped tokens in earlier passes.
        """
        due = sum(dream_shares(size, self.steps_per_block or size)[: max(number, 0) + 1])
        return max(due - (size - masked), 1)

    def _independent(self, block_pass: BlockPass, size: int) -> list[int]:
        """Return indices whose random number is below this pass's chance; all in the last pass."""
        block, number, forwards = block_pass.block, block_pass.number, self.steps_per_block or size
        masked = block.masked
        if number >= forwards - 1:
            return list(range(len(masked)))
        seed = block_pass.sequence.request.seed
        hit = set(below(seed, block.start, block.end, number, "choose", hazard(number, forwards)))
        return [index for index, position in enumerate(masked) if position in hit]

    def scores(self, block_pass: BlockPass) -> Sequence[float]:
        """Return the scores of `order`, with noise if sampled; `eos_last` puts ends last."""
        samples = block_pass.samples
        match self.order:
            case "random":
                scores = _numbers(block_pass)
            case "left":
                scores = [-float(position) for position in block_pass.block.masked]
            case order:
                scores = scores_by(order, samples)
        if (scale := self.order_temperature) is not None:
            # The largest scores with Gumbel noise are a sample without replacement.
            noise = map(log, map(neg, map(log, _numbers(block_pass))))
            scores = [score / scale - own for score, own in zip(scores, noise, strict=True)]
        if self.eos_last:
            stop_ids, pairs = block_pass.sequence.request.stop_ids, zip(samples.tokens, scores, strict=True)
            scores = [_LAST_SCORE if token in stop_ids else score for token, score in pairs]
        return scores


RULE = Quota
