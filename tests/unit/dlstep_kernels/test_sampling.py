"""Sampling against the same rules in plain Python."""

# What a request did not ask for is None.
# pyright: reportOptionalSubscript=false, reportOptionalMemberAccess=false, reportOptionalOperand=false, reportCallIssue=false

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import assume, given, strategies as st

from dlstep.core import draws
from dlstep_kernels import SamplerConfig, Settings, policy_of, sample
from dlstep_kernels.sampling import Noise

from ...helpers.sampling_checks import (
    STATISTICS,
    logits_of,
    options_of,
    permitted_by,
    problems,
    settings_of,
)
from .profiles import up_to

BROKEN = (-1, 0.0, 0.0, 0.0)


def clearly(gap, least=1e-4):
    """Pass over examples that rounding decides."""
    assume(abs(gap) > least)


def oracle(row, params, counters, penalty, permitted, *, vocab_size, mask_id, sampler):
    """Token, probability, entropy and margin of one row, its most probable ids with their probabilities, and all of these."""
    temperature, top_k, top_p, min_p = params
    ties = sampler.ties
    row = [x - penalty[1] * (i == penalty[0]) if math.isfinite(x) else x for i, x in enumerate(row)]
    allowed = {i: x for i, x in enumerate(row) if i < vocab_size and i != mask_id and permitted[i] and x > -math.inf}
    if any(math.isnan(x) or x == math.inf for x in row) or not allowed:
        return BROKEN, [(-1, 0.0)] * sampler.best, {}
    best = max(allowed.values())
    plain = {i: x - best for i, x in allowed.items()}
    scores = {i: (x - best) / (temperature or 1.0) for i, x in allowed.items()}
    if top_p < 1:
        total, before, kept = sum(math.exp(x) for x in scores.values()), 0.0, {}
        for i in sorted(scores, key=lambda i: (-scores[i], i)):
            clearly(before - top_p)
            if before > top_p:
                break
            kept[i] = scores[i]
            before += math.exp(scores[i]) / total
        scores = kept
    if 0 < top_k < len(scores):
        least = sorted(scores.values())[-top_k]
        scores = {i: x for i, x in scores.items() if x >= least}
    for i in list(scores):
        if scores[i] < 0:
            clearly(math.exp(scores[i]) - min_p, 1e-6)
        if math.exp(scores[i]) < min_p:
            del scores[i]
    total = sum(math.exp(x) for x in scores.values())
    keys = dict(scores)
    if temperature:
        stream = draws.key(*counters, "sample")
        keys = {i: x - math.log(-math.log(draws.token_uniform(stream, i))) for i, x in scores.items()}
        leaders = sorted(keys.values())[-2:]
        if len(leaders) == 2:
            clearly(leaders[1] - leaders[0])
    top = max(keys.values())
    token = (max if ties == "highest" else min)(i for i in keys if keys[i] == top)
    probabilities = sorted((math.exp(x) / total for x in scores.values()), reverse=True)
    margin = probabilities[0] - (probabilities[1] if len(probabilities) > 1 else 0.0)
    measured = scores if sampler.tempered else plain
    whole = sum(math.exp(x) for x in measured.values())
    sign = -1 if ties == "highest" else 1
    ranked = sorted(measured, key=lambda i: (-measured[i], sign * i))[: sampler.best]
    likely = [(i, math.exp(measured[i]) / whole) for i in ranked]
    shares = {i: math.exp(x) / whole for i, x in measured.items()}
    entropy = -sum(p * math.log(p) for p in shares.values() if p)
    return (token, shares[token], entropy, margin), likely, shares


FILTERS = st.tuples(
    st.sampled_from((0, 0, 1, 2, 5, 50)),
    st.sampled_from((1.0, 1.0, 0.15, 0.6, 0.93)),
    st.sampled_from((0.0, 0.0, 0.07, 1.0)),
)


@up_to(400)
@given(problem=problems(rows=5, width=12), data=st.data())
def test_equals_the_rules(problem, data):
    sampler = replace(problem.sampler, statistics=frozenset(STATISTICS))
    problem = replace(problem, spread=min(problem.spread, 8.0), sampler=sampler, named=3)
    logits, options = logits_of(problem, "cpu"), options_of(problem)
    filters = [data.draw(FILTERS) for _ in range(problem.rows)]
    top_k, top_p, min_p = zip(*filters, strict=True)
    asked = replace(
        settings_of(problem, "cpu"),  # and, as a driver gives them: what no row uses is None
        top_k=torch.tensor(top_k) if any(top_k) else None,
        top_p=torch.tensor(top_p) if min(top_p) < 1 else None,
        min_p=torch.tensor(min_p) if any(min_p) else None,
    )
    before = logits.clone()
    drawn = sample(logits, asked, **options)
    policy = policy_of(drawn, logits, logits, asked, **options)
    assert torch.equal(logits, before) or logits.isnan().any()
    temperatures = problem.temperatures or (0.0,) * problem.rows
    for number, row in enumerate(logits.tolist()):
        counters = tuple([int(each[number]) for each in (asked.noise.seeds, asked.noise.positions, asked.noise.draws)])
        penalty = (-1, 0.0)
        if asked.penalty is not None:
            penalty = int(asked.penalty.ids[number]), float(asked.penalty.amounts[number])
        permitted = [True] * problem.width if asked.masks is None else permitted_by(asked.masks, problem.width)[number]
        params = (temperatures[number], *filters[number])
        expected, likely, shares = oracle(row, params, counters, penalty, permitted, **options)
        assert drawn.tokens[number] == expected[0]
        found = (drawn.probabilities[number], drawn.entropies[number], drawn.margins[number])
        assert [float(x) for x in found] == pytest.approx(expected[1:], abs=2e-5, rel=2e-5)
        assert drawn.noise[number] == draws.integer(draws.key(*counters, "renoise"), problem.vocab_size)
        for place, (token, probability) in enumerate(likely):
            assert float(drawn.best_probabilities[number, place]) == pytest.approx(probability, abs=2e-5)
            if probability > 0.0:
                assert drawn.best_ids[number, place] == token
        for place, each in enumerate(asked.scored_ids[number].tolist()):
            assert float(drawn.scored_probabilities[number, place]) == pytest.approx(shares.get(each, 0.0), abs=2e-5)
            if each not in shares:
                assert drawn.scored_probabilities[number, place] == 0.0
            if each == expected[0]:
                assert drawn.scored_probabilities[number, place] == drawn.probabilities[number]
        tempered = options | {"sampler": replace(sampler, tempered=True)}
        check_policy(policy[number], row, drawn, number, oracle(row, params, counters, penalty, permitted, **tempered)[2])
        if sampler.best:
            assert (drawn.best_probabilities[number, len(likely) :] == 0.0).all()


def check_policy(found, row, drawn, number, shares):
    """Entropy and log-probabilities of the plain softmax of all ids, and those of the distribution that was drawn from."""
    ids = [int(drawn.tokens[number]), *([] if drawn.best_ids is None else drawn.best_ids[number].tolist())]
    if ids[0] < 0:
        assert not found.any()
        return
    most = max(row)
    total = math.log(sum(math.exp(x - most) for x in row)) + most
    plain = [x - total for x in row]
    entropy = -sum(math.exp(x) * x for x in plain if x > -math.inf)
    assert len(found) == 1 + 2 * len(ids)
    assert float(found[0]) == pytest.approx(entropy, abs=2e-5)
    for place, token in enumerate(ids):
        sampled, own = float(found[1 + place]), float(found[1 + len(ids) + place])
        if token in shares:  # others, of probability 0, are arbitrary
            assert sampled == pytest.approx(math.log(shares[token]), abs=2e-5)
            assert own == pytest.approx(plain[token], abs=2e-5)


def test_an_id_at_the_edge_of_a_filter_is_kept():
    """Half of the probability lies before the second id, whose own is half of the best one's in the second row."""
    logits = torch.tensor([[0.0, 0.0, -40.0], [math.log(2.0), 0.0, -40.0]])
    halves = torch.tensor([0.5, 0.5])
    sampler = SamplerConfig(ties="lowest", best=3)
    one, two = (
        sample(logits, asked, vocab_size=3, mask_id=None, sampler=sampler).best_probabilities
        for asked in (Settings(top_p=halves), Settings(min_p=halves))
    )
    assert one[0].tolist() == [0.5, 0.5, 0.0]
    assert two[1].tolist() == pytest.approx([2 / 3, 1 / 3, 0.0], abs=1e-6)


def test_top_p_of_one_drops_nothing():
    """Not even where the rounded sum of all other probabilities is more than 1, beside a row that drops something."""
    for seed in range(200):
        logits = torch.randn(1, 64, generator=torch.Generator().manual_seed(seed))
        logits[0, 0] = -20.0
        if logits.sort(descending=True).values.softmax(-1).cumsum(-1)[0, -2] > 1:
            break
    else:
        pytest.fail("no sum is rounded to more than 1")
    asked = Settings(top_p=torch.tensor([1.0, 0.5]))
    drawn = sample(logits.repeat(2, 1), asked, vocab_size=64, mask_id=None, sampler=SamplerConfig(best=64))
    assert (drawn.best_probabilities[0] > 0).all()
    assert (drawn.best_probabilities[1] == 0).any()


def test_a_temperature_without_a_normal_reciprocal_is_greedy():
    logits = torch.tensor([[3.0, 1.0, 2.0, -3.0, 0.0], [1e4, 9.9e3, -1e4, -9e3, 0.0]]).repeat(4, 1)
    rows = torch.arange(8)
    drawn = sample(logits, Settings(torch.full((8,), 1e-44), noise=Noise(rows, rows, rows)), vocab_size=5, mask_id=None)
    assert set(drawn.tokens.tolist()) == {0}
    assert drawn.probabilities.tolist() == [1.0] * 8
