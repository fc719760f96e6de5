"""The rule that remembers: credit of ids, by hand and where it is another rule."""

import math
from dataclasses import replace
from random import Random

import pytest
from hypothesis import example, given, strategies as st

from dlstep.core import Request, SamplingParams, SpanSamples
from dlstep.core.draws import key, token_uniform
from dlstep.rules.credit import BEST, Credit, Credits
from dlstep.strategies.causal_blocks import CausalBlocks
from dlstep.strategies.multi_bd import MultiBD
from dlstep.testing.generators import MASK, random_automata
from dlstep.testing.harness import answered_alone

from ...helpers.decoding import SPEC
from ...helpers.passes import pass_of
from .by_hand import begun, fresh, numbers, rows_of, shown


def test_no_more_than_so_many_ids_have_credit():
    """The weakest credit goes, never that of the id that is the most probable one now."""
    rule, block = Credit(1.0, credit_weight=0.0, credit_power=1.0, credit_decay=1.0), fresh(1)
    sequence = begun(rule, block)
    for best in range(BEST + 3):
        chance = 0.9 - best / 20
        rest = tuple((best + rank) % MASK for rank in range(1, BEST))
        rows = SpanSamples((best,), (chance,), (), (), (best, *rest), (chance, *[0.0] * (BEST - 1)))
        block = rule.commit(pass_of(rule, sequence, block, rows, SPEC, must=False))
        assert isinstance(block.extra, Credits)
        ((ids,), _) = block.extra.ids, block.extra.amounts
        assert ids[0] == best and len(ids) == min(best + 1, BEST)
    assert set(ids) == {*range(BEST - 1), BEST + 2}


@pytest.mark.parametrize("divisor, left", [(None, 20), (2.5, 20), (2.5, 5), (0.4, 3), (2.5, 1)])
def test_credit_samples_from_the_fused_probabilities(divisor, left):
    """The id that wins with the noise of the sampled token is that of all ids' fused probabilities; so is its probability.

    With a `divisor`, the strategy reports probabilities before the temperature, and a filter keeps `left` ids.
    """
    random, differ = Random(4), 0
    rule = Credit(0.0, credit_weight=3.0, credit_power=0.3, credit_decay=0.9)
    first_pass = begun(rule, fresh(1), temperature=divisor or 1.0)
    carrier = CausalBlocks(rule=rule) if divisor else first_pass.request.strategy
    params = replace(first_pass.request.params, top_k=left % 20)
    for number in range(200):
        weights = [random.random() ** 2 for _ in range(20)]
        chances = [weight / math.fsum(weights) for weight in weights]
        block = fresh(1).with_extra(Credits(((3, 8, 11),), ((random.random() * 3, random.random(), 0.4),)))
        sequence = replace(first_pass, request=replace(first_pass.request, seed=number, strategy=carrier, params=params))
        order = sorted(range(20), key=lambda token: -chances[token])
        stream = key(number, 1, 0, "sample")
        noise = [-math.log(-math.log(token_uniform(stream, token))) for token in range(20)]
        scores = {token: math.log(chances[token]) / (divisor or 1.0) for token in order[:left]}
        sampled = max(scores, key=lambda token: scores[token] + noise[token])
        first, second = (math.exp(scores[token]) if token in scores else 0.0 for token in order[:2])
        margin = (first - second) / math.fsum(map(math.exp, scores.values()))
        rows = SpanSamples(
            (sampled,), (chances[sampled],), (), (margin,), tuple(order[:BEST]), tuple(chances[t] for t in order[:BEST])
        )
        credit = {3: 0.0, 8: 0.0, 11: 0.0}
        assert isinstance(block.extra, Credits)
        credit |= dict(zip((3, 8, 11), (amount * 0.9 for amount in block.extra.amounts[0]), strict=True))
        credit[order[0]] = credit.get(order[0], 0.0) + chances[order[0]] ** 0.3
        raised = [
            chance * (1 + credit.get(token, 0.0)) ** 3 if token in order[:BEST] else chance
            for token, chance in enumerate(chances)
        ]
        token = max(scores, key=lambda token: scores[token] + math.log(raised[token] / chances[token]) + noise[token])
        found = rule.commit(pass_of(rule, sequence, block, rows, SPEC))
        assert found.tokens == (token,)
        # A sampled id outside of the best ones, which has credit, is not told of beside the others.
        if token in order[:BEST] or token not in credit:
            assert found.probabilities[0] == pytest.approx(raised[token] / math.fsum(raised), abs=1e-9)
        differ += token != sampled
    assert differ > 20 or left == 1


@pytest.mark.parametrize("first, second, expected", rows_of("credit"))
def test_rows_of_credit(first, second, expected):
    """Each entry is the probability of id 1; id 2 has the rest."""
    rule = Credit(credit_weight=1.0, credit_power=1.0, credit_decay=0.5)
    size = len(numbers(first))
    block, sequence = fresh(size), begun(rule, fresh(size))
    for must, chances in enumerate((numbers(first), numbers(second))):
        pairs = [sorted(((chance, 1), (1 - chance, 2)), reverse=True) for chance in chances]
        ids = tuple(token for pair in pairs for token in (pair[0][1], pair[1][1], 3, 4, 5, 6, 7, 8))
        best = tuple(p for pair in pairs for p in (pair[0][0], pair[1][0], 0, 0, 0, 0, 0, 0))
        rows = SpanSamples(tuple(pair[0][1] for pair in pairs), tuple(pair[0][0] for pair in pairs), (), (), ids, best)
        block = rule.commit(pass_of(rule, sequence, block, rows, SPEC, must=bool(must)))
        sequence = sequence.after_forward(sequence.storage, 1)
    assert shown(block) == expected


@example(prompt=28, size=12, seed=738, block_size=4, number=7)
@example(prompt=31, size=16, seed=734, block_size=8, number=20)
@given(
    prompt=st.integers(0, 40),
    size=st.integers(4, 20),
    seed=st.integers(0, 1000),
    block_size=st.sampled_from([2, 4, 8]),
    number=st.integers(0, len(random_automata()) - 1),
)
def test_credit_draws_a_token_where_few_ids_are_allowed(prompt, size, seed, block_size, number):
    """A device fills the list of most probable ids with any ids of probability 0, also with those listed before."""
    params, automaton = SamplingParams(max_tokens=size, temperature=1.0, seed=seed), random_automata()[number]
    strategy = MultiBD(block_size=block_size, buffer_size=2, rule=Credit(0.99))
    request = Request(0, (1, 2, prompt), params, automaton=automaton)
    done = answered_alone(SPEC, strategy, request)
    assert done.finish == "rejected" or automaton.accepts(done.answer)
