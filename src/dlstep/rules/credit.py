"""CreditDecoding: ids that were the most probable ones before are trusted more, so that tokens are taken earlier.

Source: Wang et al., "CreditDecoding: Accelerating Parallel Decoding in Diffusion Large Language Models with Trace Credit",
2025, arXiv 2510.06133. Its code adds credits to logits; the probabilities here are the same, worked out from the ids with
credit and their probabilities. Ids outside of the `BEST` most probable ones count as probability 0, and a position keeps credit
for so many ids at most. Its code takes all positions within 1e-5 of the best one where none is above the threshold, here the
first of the best. Its code is greedy; here the token is drawn from the fused probabilities at any temperature.
"""

from collections.abc import Mapping, Sequence as Items
from dataclasses import dataclass
from math import log
from typing import Annotated, final

from annotated_types import Interval

from ..core import Block, Extra, Probability, Rows, Rule, Sequence, Spec, Wants, check_ranges, draw
from ..core.draws import key, uniform

BEST = 8
WANTS = Wants(best=BEST)


@final
@dataclass(frozen=True, slots=True)
class Credits(Extra):
    """Of each undecided position of a block, the ids that have credit, and how much."""

    ids: tuple[tuple[int, ...], ...]
    amounts: tuple[tuple[float, ...], ...]


@final
@dataclass(frozen=True, slots=True)
class Credit(Rule):
    """Takes every position whose token is probable enough once the credit of its past is counted in.

    In each forward all credits shrink by `credit_decay`, and each position's most probable id gains its probability to the
    power `credit_power`. The probability of an id with credit C is multiplied by (1 + C) to the power `credit_weight`, and
    all are normalised.
    """

    accept_threshold: Probability = 0.9
    """A position is decided when the probability of its token is above this."""
    inclusive: bool = False
    """A probability that equals the threshold is enough."""
    credit_weight: Annotated[float, Interval(ge=0.0, le=16.0)] = 0.7
    """How much credit counts; 0: not at all."""
    credit_power: Annotated[float, Interval(ge=0.0, le=16.0)] = 0.2
    """Power of a probability that is gained as credit; 0: one for every forward."""
    credit_decay: Probability = 0.8
    """Share of a credit that is left after a forward."""

    def __post_init__(self) -> None:
        check_ranges(self)

    @property
    def wants(self) -> Wants:
        """The most probable ids."""
        return WANTS

    def decided(self, sequence: Sequence, block: Block, rows: Rows, begin: int, must: bool, spec: Spec) -> Block:
        """The block with what is probable enough, or else the best position, and the credit of the others."""
        del spec
        undecided, extra = block.undecided, block.extra
        memory = extra if isinstance(extra, Credits) else None
        if memory is None or len(memory.ids) != len(undecided):  # none, or another rule has been at the block since
            memory = Credits(((),) * len(undecided), ((),) * len(undecided))
        warm, seed, number = sequence.goal.request.params.temperature, sequence.goal.request.seed, draw(sequence, block)
        tokens: list[int] = []
        probabilities: list[float] = []
        credits: list[tuple[tuple[int, ...], tuple[float, ...]]] = []
        for row, (position, ids, amounts) in enumerate(zip(undecided, memory.ids, memory.amounts, strict=True), begin):
            best_ids = rows.best_ids[row * BEST : row * BEST + BEST]
            best_probabilities = rows.best_probabilities[row * BEST : row * BEST + BEST]
            ids, amounts = self._renewed(ids, amounts, best_ids[0], best_probabilities[0])
            weighted, total = fused(best_ids, best_probabilities, ids, amounts, self.credit_weight)
            if warm:
                weighted.setdefault(rows.tokens[row], rows.probabilities[row])
                token = _drawn(weighted, key(seed, position, number, "sample"))
            else:
                token = max(weighted, key=weighted.__getitem__) if len(weighted) > 1 else ids[0]
            tokens.append(token)
            probabilities.append(weighted[token] / total)
            credits.append((ids, amounts))
        chosen = self._chosen(probabilities, must)
        block = block.decide(chosen, 0, tokens, probabilities)
        if not block.undecided:
            return block.remembering(None)
        taken = set(chosen)
        left = [credit for place, credit in enumerate(credits) if place not in taken]
        return block.remembering(Credits(tuple([ids for ids, _ in left]), tuple([amounts for _, amounts in left])))

    def _renewed(
        self, ids: tuple[int, ...], amounts: tuple[float, ...], best: int, probability: float
    ) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """The ids with credit and their credit after a forward in which `best`, the first of them, was the most probable."""
        decay, gained = self.credit_decay, probability**self.credit_power
        if not ids:
            return (best,), (gained,)
        if ids == (best,):
            return ids, (amounts[0] * decay + gained,)
        others = {token: kept for token, amount in zip(ids, amounts, strict=True) if (kept := amount * decay)}
        gained += others.pop(best, 0.0)
        if len(others) == BEST:
            del others[min(others, key=others.__getitem__)]
        return (best, *others), (gained, *others.values())

    def _chosen(self, probabilities: list[float], must: bool) -> list[int]:
        """Places whose probability is above the threshold, or else the best one where one must be taken."""
        accept, inclusive = self.accept_threshold, self.inclusive
        chosen = [place for place, p in enumerate(probabilities) if p > accept or (inclusive and p == accept)]
        return chosen or ([probabilities.index(max(probabilities))] if must else [])


def fused(
    ids: Items[int], probabilities: Items[float], credited: Items[int], amounts: Items[float], weight: float
) -> tuple[dict[int, float], float]:
    """Probabilities of those of `ids` that are `credited`, as their credits raise them, and what all ids then sum to.

    The most probable of all ids is among them, because the most probable one without credit has just gained some. Equally
    probable ones are in the order of `ids`.
    """
    if len(credited) == 1:  # the first of `ids`
        raised = probabilities[0] * (1.0 + amounts[0]) ** weight
        return {credited[0]: raised}, 1.0 + (raised - probabilities[0])
    amount_of = dict(zip(credited, amounts, strict=True))
    weighted: dict[int, float] = {}
    total = 1.0
    for token, probability in zip(ids, probabilities, strict=True):
        if token in amount_of:
            weighted[token] = raised = probability * (1.0 + amount_of[token]) ** weight
            total += raised - probability
    return weighted, total


def _drawn(weighted: Mapping[int, float], stream: int) -> int:
    """The id that Gumbel noise chooses, with the numbers that sampled the token.

    Against ids without credit the sampled token has won already, so that those with credit are all that can beat it.
    """
    found = {token: log(chance) - log(-log(uniform(stream, token))) for token, chance in weighted.items() if chance}
    return max(found, key=found.__getitem__)


RULE = Credit
