"""CreditDecoding: raise the probability of ids that were the most probable ones in earlier passes.

Source: Wang et al., "CreditDecoding: Accelerating Parallel Decoding in Diffusion Large Language
Models with Trace Credit", 2025, arXiv 2510.06133. Their code adds credits to logits; the
probabilities here are equal. Differences: ids outside the `BEST` most probable ones have
probability 0, and a position keeps credit for at most as many. Their code accepts a probability
equal to the threshold (`inclusive`), unmasks all within 1e-5 of the best if none is above it (here
one), and is greedy (here any temperature works).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, repeat
from math import log
from typing import Annotated, final

from annotated_types import Interval

from ..core import Block, BlockPass, Extra, Ids, Probability, Rule, SampleSpec
from ..core.draws import key, token_uniform

BEST = 8
SAMPLE_SPEC = SampleSpec(best=BEST)


@final
@dataclass(frozen=True, slots=True)
class Credits(Extra):
    """The ids with credit at each masked position of a block, and their credits."""

    ids: tuple[Ids, ...]
    amounts: tuple[tuple[float, ...], ...]


@final
@dataclass(frozen=True, slots=True)
class Credit(Rule):
    """A rule that unmasks each position whose token is probable enough with its credit.

    In each pass all credits shrink by `credit_decay`, and each position's most probable id gains
    its probability to the power `credit_power`. The probability of an id with credit C is
    multiplied by (1 + C) ** `credit_weight`, then all are normalised.
    """

    accept_threshold: Probability = 0.9
    """Unmask a position when the probability of its token is above this."""
    inclusive: bool = False
    """A probability equal to the threshold is enough."""
    credit_weight: Annotated[float, Interval(ge=0.0, le=16.0)] = 0.7
    """Exponent of (1 + credit); 0 ignores credit."""
    credit_power: Annotated[float, Interval(ge=0.0, le=16.0)] = 0.2
    """Power of a probability that is gained as credit; 0 gains one per forward pass."""
    credit_decay: Probability = 0.8
    """Fraction of a credit that is left after a forward pass."""

    @property
    def sample_spec(self) -> SampleSpec:
        """The most probable ids."""
        return SAMPLE_SPEC

    def commit(self, block_pass: BlockPass) -> Block:
        """Return the block with certain positions unmasked, or the best one, and new credits."""
        block, samples = block_pass.block, block_pass.samples
        masked, memory = block.masked, block.extra
        count = len(masked)
        if not isinstance(memory, Credits) or len(memory.ids) != count:  # none, or of another rule
            memory = Credits(((),) * count, ((),) * count)
        most_probable = samples.best_probabilities[::BEST]
        gains = map(pow, most_probable, repeat(self.credit_power))
        credits = list(map(_after, memory.ids, memory.amounts, samples.best_ids[::BEST], gains, repeat(self.credit_decay)))
        most = max([max(credit.values()) for credit in credits])
        warm = block_pass.sequence.request.params.temperature > 0.0
        bounds = list(map(max, most_probable, samples.probabilities)) if warm else most_probable
        raising = (1.0 + most) ** self.credit_weight
        chosen = self._chosen(bounds, raising, lambda place: self._answer(block_pass, place, credits[place]), block_pass.must)
        left = [credit for place, credit in enumerate(credits) if place not in chosen]
        kept = Credits(tuple(map(tuple, left)), tuple([tuple(credit.values()) for credit in left]))
        block = block.with_extra(kept if left else None)
        positions, pairs = [masked[place] for place in chosen], chosen.values()
        return block.unmask(positions, [token for token, _ in pairs], [p for _, p in pairs]) if chosen else block

    def _chosen(
        self, bounds: Sequence[float], raising: float, answered: Callable[[int], tuple[int, float]], must: bool
    ) -> dict[int, tuple[int, float]]:
        """Return the places to unmask with token and probability; at least one if `must`."""
        accept, inclusive = self.accept_threshold, self.inclusive
        candidates = {place: answered(place) for place in _promising(bounds, raising, accept)}
        chosen = {place: pair for place, pair in candidates.items() if pair[1] > accept or (inclusive and pair[1] == accept)}
        if chosen or not must:
            return chosen
        _, least = answered(bounds.index(max(bounds)))  # those with a lower bound cannot be best
        candidates = {place: answered(place) for place in _promising(bounds, raising, least)}
        best = max(candidates, key=lambda place: candidates[place][1])
        return {best: candidates[best]}

    def _answer(self, block_pass: BlockPass, place: int, credit: Mapping[int, float]) -> tuple[int, float]:
        """Return the token of a masked position and its probability, both with credit."""
        samples, request = block_pass.samples, block_pass.sequence.request
        best_ids = samples.best_ids[place * BEST : place * BEST + BEST]
        best_probabilities = samples.best_probabilities[place * BEST : place * BEST + BEST]
        weighted, total = fused(best_ids, best_probabilities, credit, self.credit_weight)
        params, divisor = request.params, request.params.temperature
        if not divisor:
            token = max(weighted, key=weighted.__getitem__)
            return token, weighted[token] / total
        if request.strategy.sample_spec.tempered:
            divisor = 1.0  # the probabilities are those after temperature and filters
        elif params.top_k or params.min_p or params.top_p < 1.0:
            best_ids = best_ids[: kept(best_probabilities, divisor, samples.margins[place])]
        factors = {token: (1.0 + credit[token]) ** self.credit_weight for token in weighted if token in best_ids}
        sampled = samples.tokens[place]
        factors.setdefault(sampled, 1.0)
        weighted.setdefault(sampled, samples.probabilities[place])
        stream = key(request.seed, block_pass.sampled[place], block_pass.number, "sample")
        token = _drawn({token: (weighted[token] / factor, factor) for token, factor in factors.items()}, divisor, stream)
        return token, weighted[token] / total


def _promising(bounds: Sequence[float], raising: float, least: float) -> list[int]:
    """Return the places whose probability with credit may reach `least`.

    `bounds[i]` is at least the probability of any id at place i. An id of probability p that is
    multiplied by r gets at most p r / (1 - p + p r), and no r is above `raising`.
    """
    lowest = least / (least + raising * (1.0 - least)) * (1.0 - 1e-9)  # allow for rounding
    return [place for place, bound in enumerate(bounds) if bound >= lowest]


def _after(ids: Ids, amounts: tuple[float, ...], best: int, gained: float, decay: float) -> dict[int, float]:
    """Return the ids with credit at a position and their credits after a pass; `best`, the first id, gains credit.

    Credits of 0 are dropped. If there are too many ids, drop the one with the least credit.
    """
    decayed = {token: amount * decay for token, amount in zip(ids, amounts, strict=True)}
    gained += decayed.pop(best, 0.0)
    others = {token: amount for token, amount in decayed.items() if amount}
    if len(others) == BEST:
        del others[min(others, key=others.__getitem__)]
    return {best: gained} | others


def fused(
    ids: Sequence[int], probabilities: Sequence[float], credit: Mapping[int, float], weight: float
) -> tuple[dict[int, float], float]:
    """Return the raised probabilities of the ids with `credit`, and the new sum over all ids.

    They include the most probable id, because the most probable id without credit has just gained
    some. Ties are in the order of `ids`.
    """
    weighted: dict[int, float] = {}
    total = 1.0
    for token, probability in zip(ids, probabilities, strict=True):
        if token in credit and token not in weighted:  # ids of probability 0 may repeat earlier ones
            weighted[token] = raised = probability * (1.0 + credit[token]) ** weight
            total += raised - probability
    return weighted, total


def kept(probabilities: Sequence[float], temperature: float, margin: float) -> int:
    """Return how many of the most probable ids the filters keep, at least 1.

    `probabilities` are those before temperature and filters. After these, the probability of an id
    is p ** (1 / temperature) / z, where z is the sum of these powers over all ids that are kept;
    `margin`, the difference of the two largest, gives z. Rounding may only leave out improbable ids.
    """
    powers = [(probability / probabilities[0]) ** (1.0 / temperature) for probability in probabilities]
    z = (1.0 - powers[1]) / (margin + 1e-6)
    return sum(before < z for before in accumulate(powers[:-1], initial=0.0)) or 1


def _drawn(chances: Mapping[int, tuple[float, float]], divisor: float, stream: int) -> int:
    """Return the id that Gumbel noise chooses, from the random numbers that sampled the token.

    `chances` maps each id to its probability without credit, whose logarithm is divided by `divisor`, and to its factor
    by credit.
    Ids without credit have already lost to the sampled token.
    """
    noisy = {
        token: log(chance) / divisor + log(factor) - log(-log(token_uniform(stream, token)))
        for token, (chance, factor) in chances.items()
        if chance
    }
    return max(noisy, key=noisy.__getitem__)


RULE = Credit
