"""CreditDecoding: raise the probability of ids that were the most probable ones in earlier passes.

Source: Wang et al., "CreditDecoding: Accelerating Parallel Decoding in Diffusion Large Language
Models with Trace Credit", 2025, arXiv 2510.06133. Their code adds credits to logits; the
probabilities here are equal. Differences: ids outside the `BEST` most probable ones have
probability 0, and a position keeps credit for at most as many. Their code accepts a probability
equal to the threshold (`inclusive`), unmasks all within 1e-5 of the best if none is above it (here
one), and is greedy (here any temperature works).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from math import log
from typing import Annotated, final

from annotated_types import Interval

from ..core import Block, Extra, Probability, Rule, SampleSpec, SequenceState, SpanSamples, Spec, draw
from ..core.draws import key, token_uniform

BEST = 8
SAMPLE_SPEC = SampleSpec(best=BEST)


@final
@dataclass(frozen=True, slots=True)
class Credits(Extra):
    """The ids with credit at each masked position of a block, and their credits."""

    ids: tuple[tuple[int, ...], ...]
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

    def commit(self, sequence: SequenceState, block: Block, rows: SpanSamples, begin: int, must: bool, spec: Spec) -> Block:
        """Return the block with certain positions unmasked, or the best one, and new credits."""
        del spec
        masked, memory = block.masked, block.extra
        count = len(masked)
        if not isinstance(memory, Credits) or len(memory.ids) != count:  # none, or of another rule
            memory = Credits(((),) * count, ((),) * count)
        end = begin + count
        most_probable = rows.best_probabilities[begin * BEST : end * BEST : BEST]
        best_ids = rows.best_ids[begin * BEST : end * BEST : BEST]
        gains = map(pow, most_probable, repeat(self.credit_power))
        ids, amounts, most = _after(memory, best_ids, gains, self.credit_decay)
        warm = sequence.request.params.temperature > 0.0
        bounds = list(map(max, most_probable, rows.probabilities[begin:end])) if warm else most_probable
        raising = (1.0 + most) ** self.credit_weight

        def answered(place: int) -> tuple[int, float]:
            """Return token and probability of a masked position."""
            row = begin + place
            return self._answer(sequence, block, rows, row, masked[place], ids[place], amounts[place])

        chosen = self._chosen(bounds, raising, answered, must)
        if len(chosen) == count:
            block = block.with_extra(None)
        else:
            for place in reversed(chosen):
                del ids[place], amounts[place]
            block = block.with_extra(Credits(tuple(ids), tuple(amounts)))
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

    def _answer(
        self,
        sequence: SequenceState,
        block: Block,
        rows: SpanSamples,
        row: int,
        position: int,
        ids: tuple[int, ...],
        amounts: tuple[float, ...],
    ) -> tuple[int, float]:
        """Return the token of a position and its probability, both with credit."""
        best_ids = rows.best_ids[row * BEST : row * BEST + BEST]
        best_probabilities = rows.best_probabilities[row * BEST : row * BEST + BEST]
        weighted, total = fused(best_ids, best_probabilities, ids, amounts, self.credit_weight)
        request = sequence.request
        if request.params.temperature:
            weighted.setdefault(rows.tokens[row], rows.probabilities[row])
            token = _drawn(weighted, key(request.seed, position, draw(sequence, block), "sample"))
        else:
            token = max(weighted, key=weighted.__getitem__) if len(weighted) > 1 else ids[0]
        return token, weighted[token] / total


def _promising(bounds: Sequence[float], raising: float, least: float) -> list[int]:
    """Return the places whose probability with credit may reach `least`.

    `bounds[i]` is at least the probability of any id at place i. An id of probability p that is
    multiplied by r gets at most p r / (1 - p + p r), and no r is above `raising`.
    """
    lowest = least / (least + raising * (1.0 - least)) * (1.0 - 1e-9)  # allow for rounding
    return [place for place, bound in enumerate(bounds) if bound >= lowest]


def _after(
    memory: Credits, best_ids: Sequence[int], gains: Iterable[float], decay: float
) -> tuple[list[tuple[int, ...]], list[tuple[float, ...]], float]:
    """Return the ids with credit and their credits after a pass, and the largest credit."""
    ids, places = list(memory.ids), range(len(memory.ids))
    amounts: list[tuple[float, ...]] = []
    most, add = 0.0, amounts.append
    for place, own, held, best, gained in zip(places, memory.ids, memory.amounts, best_ids, gains, strict=True):
        size = len(own)
        if size == 2 and best in own:  # fast path: mostly one or two ids alternate
            one, two = held
            if own[0] == best:
                one, two = one * decay + gained, two * decay
            else:
                ids[place] = own[::-1]
                one, two = two * decay + gained, one * decay
            if two:
                add((one, two))
                if one > most or two > most:
                    most = one if one > two else two
                continue
        elif size == 1 and own[0] == best:
            one = held[0] * decay + gained
            add((one,))
            if one > most:
                most = one
            continue
        ids[place], renewed = _renewed(own, [amount * decay for amount in held], best, gained)
        add(renewed)
        most = max(most, *renewed)
    return ids, amounts, most


def _renewed(ids: tuple[int, ...], amounts: list[float], best: int, gained: float) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return ids and credits after a pass; `best`, the first id, gains credit. Drops credits of 0.

    `amounts` are credits after decay. Of too many ids, the one with least credit goes.
    """
    if best in ids:
        place = ids.index(best)
        gained += amounts.pop(place)
        if place:
            ids = (best, *ids[:place], *ids[place + 1 :])
        if all(amounts):
            return ids, (gained, *amounts)
        ids = ids[1:]
    others = {token: amount for token, amount in zip(ids, amounts, strict=True) if amount}
    if len(others) == BEST:
        del others[min(others, key=others.__getitem__)]
    return (best, *others), (gained, *others.values())


def fused(
    ids: Sequence[int], probabilities: Sequence[float], credited: Sequence[int], amounts: Sequence[float], weight: float
) -> tuple[dict[int, float], float]:
    """Return the raised probabilities of the `credited` ids, and the new sum over all ids.

    They include the most probable id, because the most probable id without credit has just gained
    some. Ties are in the order of `ids`.
    """
    if len(credited) == 1:  # the first of `ids`
        raised = probabilities[0] * (1.0 + amounts[0]) ** weight
        return {credited[0]: raised}, 1.0 + (raised - probabilities[0])
    amount_of, count = dict(zip(credited, amounts, strict=True)), len(credited)
    weighted: dict[int, float] = {}
    total = 1.0
    for token, probability in zip(ids, probabilities, strict=True):
        if token in amount_of and token not in weighted:  # ids of probability 0 may repeat earlier ones
            weighted[token] = raised = probability * (1.0 + amount_of[token]) ** weight
            total += raised - probability
            if len(weighted) == count:
                break
    return weighted, total


def _drawn(weighted: Mapping[int, float], stream: int) -> int:
    """Return the id that Gumbel noise chooses, from the random numbers that sampled the token.

    Ids without credit have already lost to the sampled token.
    """
    noisy = {token: log(chance) - log(-log(token_uniform(stream, token))) for token, chance in weighted.items() if chance}
    return max(noisy, key=noisy.__getitem__)


RULE = Credit
