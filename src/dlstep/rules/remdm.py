"""ReMDM: remask tokens, in extra passes before a block is full or randomly in every pass.

Source: Wang et al., "Remasking Discrete Diffusion Models with Inference-Time Scaling", 2025, arXiv
2503.00307; `llada` is the authors' variant for LLaDA. Differences: a step that unmasks nothing runs
no pass, because tokens and choices are independent; the last step unmasks all masks without a
separate pass; steps before `t_on` never exceed `alpha_on`. `llada` counts seven eighths of the
passes, the copies that were read of the positions: the same if each pass unmasks one position.
"""

from bisect import bisect_left
from dataclasses import dataclass
from math import exp, fsum
from typing import Annotated, Literal, final

from annotated_types import Interval

from ..core import (
    Block,
    BlockPass,
    Extra,
    NonNegativeInt,
    PlannedPass,
    Positions,
    PositiveInt,
    Probability,
    Refused,
    Rule,
    check_ranges,
)
from ..core.draws import below
from ._shares import due, highest, length, remasked, share

Variant = Literal["llada", "cap", "rescale", "conf", "loop"]
READ_BY: dict[str, tuple[Variant, ...]] = {
    "remask_forwards": ("llada",),
    "remask_count": ("llada",),
    "eta": ("cap", "rescale", "loop"),
    "t_on": ("loop",),
    "t_off": ("loop",),
    "alpha_on": ("loop",),
}
ETA: dict[Variant, float] = {"cap": 0.008, "rescale": 0.015, "loop": 0.02}


@final
@dataclass(frozen=True, slots=True)
class Walk(Extra):
    """The number of schedule steps done for a block, with or without a forward pass."""

    steps: int


@final
@dataclass(frozen=True, slots=True)
class ReMDM(Rule):
    """A rule that fills a block by a schedule and remasks tokens on the way.

    `llada` unmasks even shares, the most probable first. After seven eighths of its passes follow
    `remask_forwards` more, by default as many as the block takes without them. Before each of
    these, the `remask_count` least probable tokens are remasked; the pass unmasks as many.
    Probabilities are those when tokens were unmasked. Ties go to the lowest position in both cases.

    The other variants take `steps_per_block` steps from 0 to 1 in the share of unmasked positions,
    with a draw per position. In a step from share a to b, a token is remasked with probability
    sigma and a mask unmasked with (b - (1 - sigma) a) / (1 - a). Sigma is at most (1 - b) / a.
    `cap` uses the minimum of `eta` and this bound, `rescale` their product, `conf` the bound times
    a softmax of the unmasked positions' negated probabilities (unmasking as for sigma 0). `loop`
    remasks only between the times `t_on` and `t_off`, while the share stays `alpha_on`.
    """

    remasks = True
    SWEEP = ("steps_per_block", (2, 3, 4, 6, 8))

    variant: Variant = "llada"
    """How to choose the tokens that are remasked."""
    steps_per_block: PositiveInt | None = None
    """Forward passes per block without those that remask; None: one per position."""
    remask_forwards: NonNegativeInt | None = None
    """Passes of `llada` that remask; None: as many as the block has without them."""
    remask_count: PositiveInt | None = None
    """Tokens that each of these passes remasks; None: 1."""
    eta: Probability | None = None
    """Strength of remasking; None: 0.008 for `cap`, 0.015 for `rescale`, 0.02 for `loop`."""
    t_on: Annotated[float, Interval(ge=0.0, lt=1.0)] | None = None
    """Time at which `loop` starts remasking; a block begins at time 1 and ends at 0; None: 0.55."""
    t_off: Annotated[float, Interval(ge=0.0, lt=1.0)] | None = None
    """Time at which `loop` stops remasking; None: 0.05."""
    alpha_on: Annotated[float, Interval(gt=0.0, lt=1.0)] | None = None
    """Share of unmasked positions while `loop` remasks; None: 0.9."""

    def __post_init__(self) -> None:
        check_ranges(self)
        for name, variants in READ_BY.items():
            option = getattr(self, name)
            if option is not None and self.variant not in variants:
                known = " or ".join(map(repr, variants))
                raise Refused(
                    name,
                    "conflict",
                    f"{option} has no effect with variant={self.variant!r}: leave it out, or give {known}",
                )
        if self._stage[0] < self._stage[1]:
            raise Refused(
                "t_on", "out_of_range", f"{self._stage[0]} must not be below t_off={self._stage[1]}: time runs from 1 to 0"
            )

    def commit(self, block_pass: BlockPass) -> Block:
        """Return the block with tokens unmasked, and with remasked ones for the next pass."""
        if self.variant == "llada":
            return self._after_llada_pass(block_pass)
        block, samples, spec = block_pass.block, block_pass.samples, block_pass.spec
        sampled, seed = block_pass.free, block_pass.sequence.request.seed
        total, step = self._length(len(sampled)), _steps_done(block)
        chosen = [bisect_left(block.masked, position) for position in self.lucky(block, step, total, seed)]
        after = block.unmask_rows(chosen, samples.tokens, samples.probabilities)
        block = remasked(after, self.unlucky(block, sampled, step, total, seed), spec)
        step += 1
        while step < total and not self.lucky(block, step, total, seed):
            block = remasked(block, self.unlucky(block, sampled, step, total, seed), spec)
            step += 1
        # The last step unmasks all positions. If a constraint dropped some of these tokens, the step is repeated.
        return block.with_extra(Walk(step) if step < total or block.masked else None)

    def measure(self, planned: PlannedPass) -> int:
        """Return the number of passes left in the schedule."""
        total = self.bound(len(planned.free))
        done = planned.number if self.variant == "llada" else _steps_done(planned.block)
        return max(total - done, 1)

    def bound(self, size: int) -> int:
        """Return the length of the schedule, with the passes that remask."""
        return self._length(size) + (self._loops(size) if self.variant == "llada" else 0)

    def _length(self, size: int) -> int:
        return length(size, self.steps_per_block) if self.variant == "llada" else self.steps_per_block or size

    def _loops(self, size: int) -> int:
        return self._length(size) if self.remask_forwards is None else self.remask_forwards

    @property
    def _stage(self) -> tuple[float, float]:
        """Start and end of the time in which `loop` remasks."""
        return 0.55 if self.t_on is None else self.t_on, 0.05 if self.t_off is None else self.t_off

    def _after_llada_pass(self, block_pass: BlockPass) -> Block:
        """Return the block after a pass of `llada`, remasked if the next pass remasks."""
        block, samples, number = block_pass.block, block_pass.samples, block_pass.number
        sampled = block_pass.free
        size, steps, count = len(sampled), self.steps_per_block, self.remask_count or 1
        early, loops = max(self._length(size) * 7 // 8, 1), self._loops(size)  # passes that unmask, passes that remask
        usual = number if number < early else max(early, number - loops)  # schedule passes before this one
        if number + 1 >= self.bound(size):
            count_unmasked = size
        elif early <= number < early + loops:
            count_unmasked = min(count, due(size, steps, early))
        else:
            count_unmasked = share(size, steps, usual)
        chosen = highest(samples.probabilities, count_unmasked)
        block = block.unmask_rows(chosen, samples.tokens, samples.probabilities)
        if not early <= number + 1 < early + loops:
            return block
        masks, start, probabilities = set(block.masked), block.start, block.probabilities
        held = [position for position in sampled if position not in masks]
        return remasked(block, sorted(held, key=lambda position: probabilities[position - start])[:count], block_pass.spec)

    def _chances(self, step: int, total: int) -> tuple[float, float, float]:
        """Return a step's chances of unmasking and of remasking, and the latter's bound."""
        if step + 1 >= total:
            return 1.0, 0.0, 0.0
        staying = False
        if self.variant == "loop":
            first, last = self._stage
            staying = last < 1.0 - step / total <= first
        share = self._share(step, total)
        following = share if staying else self._share(step + 1, total)
        bound = min(1.0, (1.0 - following) / share) if share else 1.0
        match self.variant:
            case "cap":
                sigma = min(self._eta, bound)
            case "rescale":
                sigma = self._eta * bound
            case "loop":
                sigma = min(self._eta, bound) if staying else 0.0
            case _:
                sigma = 0.0
        return (following - (1.0 - sigma) * share) / (1.0 - share), sigma, bound

    @property
    def _eta(self) -> float:
        return ETA[self.variant] if self.eta is None else self.eta

    def _share(self, step: int, total: int) -> float:
        """Return the share of unmasked positions before a step of the schedule."""
        if self.variant != "loop":
            return step / total
        (first, last), high = self._stage, 0.9 if self.alpha_on is None else self.alpha_on
        time = 1.0 - step / total
        if time > first:
            return min(high, step / total * high / (1.0 - first))
        return high if time > last else 1.0 - time * (1.0 - high) / last

    def lucky(self, block: Block, step: int, total: int, seed: int) -> list[int]:
        """Return the positions that a step unmasks.

        Args:
            block: The block before the step.
            step: Number of the step, from 0.
            total: Number of steps of the schedule.
            seed: Seed of the request.
        """
        chance, _, _ = self._chances(step, total)
        if chance >= 1.0 or not block.masked:
            return list(block.masked)
        hit = below(seed, block.start, block.end, step, "choose", chance)
        masks = set(block.masked)
        return [position for position in hit if position in masks]

    def unlucky(self, block: Block, sampled: Positions, step: int, total: int, seed: int) -> list[int]:
        """Return the positions that a step remasks.

        Args:
            block: The block before the step.
            sampled: Positions of the block that were not given.
            step: Number of the step, from 0.
            total: Number of steps of the schedule.
            seed: Seed of the request.
        """
        _, sigma, bound = self._chances(step, total)
        start = block.start
        if self.variant != "conf":
            hit = below(seed, start, block.end, step, "remask", sigma) if sigma else ()
            held = set(sampled).difference(block.masked)
            return [position for position in hit if position in held]
        masks = set(block.masked)
        held = [position for position in sampled if position not in masks]
        if not held or not bound:
            return []
        weights = [exp(-block.probabilities[position - start]) for position in held]
        scale = bound / fsum(weights)
        # No weight is above 1, so only positions with a number below `scale` can be chosen.
        hit = below(seed, start, block.end, step, "remask", scale)
        chances = {position: scale * weight for position, weight in zip(held, weights, strict=True)}
        return [p for p in hit if p in chances and below(seed, p, p + 1, step, "remask", chances[p])]


def _steps_done(block: Block) -> int:
    return block.extra.steps if isinstance(block.extra, Walk) else 0


RULE = ReMDM
