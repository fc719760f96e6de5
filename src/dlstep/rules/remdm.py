"""ReMDM: decided tokens become masks again, in loops before a block is full or by chance in every forward.

Source: Wang et al., "Remasking Discrete Diffusion Models with Inference-Time Scaling", 2025, arXiv 2503.00307; `llada` is the
authors' form for LLaDA. Differences: a step of the schedule that takes nothing runs no forward, because tokens and choices are
independent; the last step takes all masks, which the authors' code does in a forward of its own; steps in front of `t_on`
never go past `alpha_on`. `llada` counts seven eighths of the forwards, the copies that were read count positions; the two are
one where a forward takes one position.
"""

from bisect import bisect_left
from dataclasses import dataclass
from math import exp, fsum
from typing import Annotated, Literal, final

from annotated_types import Ge, Gt, Interval

from ..core import Block, Extra, Probability, Rows, Rule, Sequence, Spec, check_ranges, draw
from ..core.draws import below, key, uniform
from ._schedule import due, length, masked, share

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
    """Steps of the schedule that lie behind a block, with and without a forward."""

    steps: int


@final
@dataclass(frozen=True, slots=True)
class ReMDM(Rule):
    """Fills a block by a schedule, and masks tokens again on the way.

    `llada` takes even shares, the most probable first. After seven eighths of its forwards come `remask_forwards` more, by
    default as many as the block takes without them: before each, the `remask_count` least probable tokens become masks, and
    it takes as many. Probabilities are those that tokens had when they were taken; of equal ones the lowest position is
    taken, and masked, first.

    The other variants walk in `steps_per_block` steps from share 0 to share 1 of decided positions, every position by a draw
    of its own. From share a to share b, a token becomes a mask with the probability sigma and a mask is taken with
    (b - (1 - sigma) a) / (1 - a). No sigma is above (1 - b) / a: `cap` is the lesser of `eta` and this bound, `rescale` is
    `eta` times the bound, `conf` the bound times a softmax over the decided positions of minus their probabilities, where
    masks are taken as with sigma 0. `loop` masks nothing but between the times `t_on` and `t_off`, in which the share stays
    `alpha_on`.
    """

    SWEEP = ("steps_per_block", (2, 3, 4, 6, 8))

    variant: Variant = "llada"
    """How tokens are chosen that become masks again."""
    steps_per_block: Annotated[int, Gt(0)] | None = None
    """Forwards that a block takes, those that mask again not counted; None: one for each position."""
    remask_forwards: Annotated[int, Ge(0)] | None = None
    """Forwards of `llada` that mask again; None: as many as the block has without them."""
    remask_count: Annotated[int, Gt(0)] | None = None
    """Tokens that one of them masks; None: 1."""
    eta: Probability | None = None
    """Strength of masking; None: 0.008 for `cap`, 0.015 for `rescale`, 0.02 for `loop`."""
    t_on: Annotated[float, Interval(ge=0.0, lt=1.0)] | None = None
    """Time at which `loop` begins to mask, where a block begins at 1 and ends at 0; None: 0.55."""
    t_off: Annotated[float, Interval(ge=0.0, lt=1.0)] | None = None
    """Time at which `loop` stops to mask; None: 0.05."""
    alpha_on: Annotated[float, Interval(gt=0.0, lt=1.0)] | None = None
    """Share of decided positions while `loop` masks; None: 0.9."""

    def __post_init__(self) -> None:
        check_ranges(self)
        given = {
            "remask_forwards": self.remask_forwards,
            "remask_count": self.remask_count,
            "eta": self.eta,
            "t_on": self.t_on,
            "t_off": self.t_off,
            "alpha_on": self.alpha_on,
        }
        for name, option in given.items():
            if option is not None and self.variant not in READ_BY[name]:
                raise ValueError(
                    f"ReMDM.{name}={option} does nothing with variant={self.variant!r}: leave it out, or choose "
                    f"{' or '.join(map(repr, READ_BY[name]))}"
                )
        if self._stage[0] < self._stage[1]:
            raise ValueError(f"ReMDM.t_on={self._stage[0]} must not be below t_off={self._stage[1]}: time runs from 1 to 0")

    @property
    def revokes(self) -> bool:
        """Tokens become masks again."""
        return True

    def decided(self, sequence: Sequence, block: Block, rows: Rows, begin: int, must: bool, spec: Spec) -> Block:
        """The block with what was taken, and with masks for what the next forward shall predict anew."""
        del must
        if self.variant == "llada":
            return self._looped(sequence, block, rows, begin, spec)
        sampled, seed = block.sampled(sequence.goal.limit), sequence.goal.request.seed
        total, step = self._length(len(sampled)), _behind(block)
        undecided = block.undecided
        rows_taken = [begin + bisect_left(undecided, position) for position in self.lucky(block, step, total, seed)]
        after = block.decide(rows_taken, begin, rows.tokens, rows.probabilities)
        block = masked(after, self.unlucky(block, sampled, step, total, seed), spec)
        step += 1
        while step < total and not self.lucky(block, step, total, seed):
            block = masked(block, self.unlucky(block, sampled, step, total, seed), spec)
            step += 1
        return block.remembering(Walk(step) if step < total else None)

    def measure(self, sequence: Sequence, block: Block) -> int:
        """Forwards of the schedule that are left."""
        total = self.bound(len(block.sampled(sequence.goal.limit)))
        done = sequence.ledger.steps - block.opened if self.variant == "llada" else _behind(block)
        return max(total - done, 1)

    def bound(self, size: int) -> int:
        """The schedule's length, and the forwards put in."""
        return self._length(size) + (self._loops(size) if self.variant == "llada" else 0)

    def _length(self, size: int) -> int:
        return length(size, self.steps_per_block) if self.variant == "llada" else self.steps_per_block or size

    def _early(self, size: int) -> int:
        """Forwards in front of those that mask again."""
        return max(self._length(size) * 7 // 8, 1)

    def _loops(self, size: int) -> int:
        return self._length(size) if self.remask_forwards is None else self.remask_forwards

    @property
    def _stage(self) -> tuple[float, float]:
        """Begin and end of the stage of `loop` that masks."""
        return 0.55 if self.t_on is None else self.t_on, 0.05 if self.t_off is None else self.t_off

    def _looped(self, sequence: Sequence, block: Block, rows: Rows, begin: int, spec: Spec) -> Block:
        """The block after a forward of `llada`, and the masks of the next one, if it is one that masks again."""
        sampled, number = block.sampled(sequence.goal.limit), draw(sequence, block)
        size, steps, count = len(sampled), self.steps_per_block, self.remask_count or 1
        early, loops = self._early(size), self._loops(size)
        usual = number if number < early else max(early, number - loops)  # forwards of the schedule before this one
        if number + 1 >= self.bound(size):
            number_taken = size
        elif early <= number < early + loops:
            number_taken = min(count, due(size, steps, early))
        else:
            number_taken = share(size, steps, usual)
        undecided = range(begin, begin + len(block.undecided))
        falling = sorted(undecided, key=rows.probabilities.__getitem__, reverse=True)
        block = block.decide(sorted(falling[:number_taken]), begin, rows.tokens, rows.probabilities)
        if not early <= number + 1 < early + loops:
            return block
        masks, start, probabilities = set(block.undecided), block.start, block.probabilities
        held = [position for position in sampled if position not in masks]
        return masked(block, sorted(held, key=lambda position: probabilities[position - start])[:count], spec)

    def _chances(self, step: int, total: int) -> tuple[float, float, float]:
        """Probabilities of a step: that a mask is taken, that a token becomes a mask, and the bound of the latter."""
        if step + 1 >= total:
            return 1.0, 0.0, 0.0
        staying = False
        if self.variant == "loop":
            begin, end = self._stage
            staying = end < 1.0 - step / total <= begin
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
        """The share of decided positions that the schedule wants before a step."""
        if self.variant != "loop":
            return step / total
        (begin, end), high = self._stage, 0.9 if self.alpha_on is None else self.alpha_on
        time = 1.0 - step / total
        if time > begin:
            return min(high, step / total * high / (1.0 - begin))
        return high if time > end else 1.0 - time * (1.0 - high) / end

    def lucky(self, block: Block, step: int, total: int, seed: int) -> list[int]:
        """The masks that a step takes."""
        chance, _, _ = self._chances(step, total)
        if chance >= 1.0 or not block.undecided:
            return list(block.undecided)
        hit = below(seed, block.start, block.end, step, "choose", chance)
        masks = set(block.undecided) if hit else ()
        return [position for position in hit if position in masks]

    def unlucky(self, block: Block, sampled: tuple[int, ...], step: int, total: int, seed: int) -> list[int]:
        """The tokens that become masks in a step."""
        _, sigma, bound = self._chances(step, total)
        start = block.start
        if self.variant != "conf":
            hit = below(seed, start, block.end, step, "remask", sigma) if sigma else ()
            held = set(sampled).difference(block.undecided) if hit else ()
            return [position for position in hit if position in held]
        masks = set(block.undecided)
        held = [position for position in sampled if position not in masks]
        if not held or not bound:
            return []
        weights = [exp(-block.probabilities[position - start]) for position in held]
        scale = bound / fsum(weights)
        # No weight is above 1, so that only those below `scale` can be chosen.
        hit = below(seed, start, block.end, step, "remask", scale)
        weight_of = dict(zip(held, weights, strict=True)) if hit else {}
        return [p for p in hit if p in weight_of and uniform(key(seed, p, step, "remask"), 0) < scale * weight_of[p]]


def _behind(block: Block) -> int:
    return block.extra.steps if isinstance(block.extra, Walk) else 0


RULE = ReMDM
