"""Sampling against the same rules in plain Python."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import assume, given, settings, strategies as st

from dlstep.core import draws
from dlstep_kernels import Penalty, Reading, Settings, sample
from dlstep_kernels.sampling import Noise

BROKEN = (-1, 0.0, 0.0, 0.0)
LOGITS = st.integers(-8, 8).map(lambda number: number / 2)
ODD = st.sampled_from((math.nan, math.inf, -math.inf))


def clearly(gap: float, least: float = 1e-4) -> None:
    """Pass over examples that rounding decides."""
    assume(abs(gap) > least)


def oracle(row, vocab_size, mask_id, reading, params, counters, penalty):
    """Token, probability, entropy and margin of one row, and its most probable ids with their probabilities."""
    temperature, top_k, top_p, min_p = params
    ties = reading.ties
    row = [x - penalty[1] * (i == penalty[0]) if math.isfinite(x) else x for i, x in enumerate(row)]
    allowed = {i: x for i, x in enumerate(row) if i < vocab_size and i != mask_id and x > -math.inf}
    if any(math.isnan(x) or x == math.inf for x in row) or not allowed:
        return BROKEN, [(-1, 0.0)] * reading.best
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
        keys = {i: x - math.log(-math.log(draws.uniform(stream, i))) for i, x in scores.items()}
        leaders = sorted(keys.values())[-2:]
        if len(leaders) == 2:
            clearly(leaders[1] - leaders[0])
    top = max(keys.values())
    token = (max if ties == "highest" else min)(i for i in keys if keys[i] == top)
    probabilities = sorted((math.exp(x) / total for x in scores.values()), reverse=True)
    entropy = -sum(p * math.log(p) for p in probabilities if p)
    margin = probabilities[0] - (probabilities[1] if len(probabilities) > 1 else 0.0)
    measured = scores if reading.tempered else plain
    whole = sum(math.exp(x) for x in measured.values())
    sign = -1 if ties == "highest" else 1
    ranked = sorted(measured, key=lambda i: (-measured[i], sign * i))[: reading.best]
    likely = [(i, math.exp(measured[i]) / whole) for i in ranked]
    return (token, math.exp(measured[token]) / whole, entropy, margin), likely


@st.composite
def rows_of_logits(draw):
    width = draw(st.integers(2, 12))
    rows = draw(st.lists(st.lists(LOGITS, min_size=width, max_size=width), min_size=1, max_size=5))
    for _ in range(draw(st.integers(0, 2))):
        row, column = draw(st.integers(0, len(rows) - 1)), draw(st.integers(0, width - 1))
        rows[row][column] = draw(ODD)
    if draw(st.booleans()):
        rows[draw(st.integers(0, len(rows) - 1))] = [-math.inf] * width
    return rows


PARAMS = st.tuples(
    st.sampled_from((0.0, 0.0, 0.5, 1.0, 3.0)),
    st.sampled_from((0, 0, 1, 2, 5, 50)),
    st.sampled_from((1.0, 1.0, 0.15, 0.6, 0.93)),
    st.sampled_from((0.0, 0.0, 0.07, 1.0)),
)
COUNTERS = st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(0, 5000), st.integers(0, 60))


def settings_of(params, counters) -> Settings:
    """As a driver gives them: what no row uses is None."""
    temperature, top_k, top_p, min_p = zip(*params, strict=True)
    hot = any(temperature)
    return Settings(
        torch.tensor(temperature) if hot else None,
        torch.tensor(top_k) if any(top_k) else None,
        torch.tensor(top_p) if min(top_p) < 1 else None,
        torch.tensor(min_p) if any(min_p) else None,
        Noise(*(torch.tensor(column) for column in zip(*counters, strict=True))),
    )


@settings(max_examples=400, deadline=None)
@given(data=st.data(), rows=rows_of_logits(), ties=st.sampled_from(("highest", "lowest")))
def test_equals_the_rules(data, rows, ties):
    width = len(rows[0])
    vocab_size, mask_id = data.draw(st.integers(1, width)), data.draw(st.integers(0, width - 1))
    params = [data.draw(PARAMS) for _ in rows]
    counters = [data.draw(COUNTERS) for _ in rows]
    logits = torch.tensor(rows, dtype=torch.float32)
    before = logits.clone()
    penalties = [data.draw(st.tuples(st.integers(-1, width - 1), st.sampled_from((0.0, 0.5, 3.0)))) for _ in rows]
    reading = Reading(frozenset(("entropy", "margin", "noise")), ties, data.draw(st.integers(0, 3)), data.draw(st.booleans()))
    penalty = Penalty(torch.tensor([id for id, _ in penalties]), torch.tensor([amount for _, amount in penalties]))
    asked = replace(settings_of(params, counters), penalty=penalty)
    drawn = sample(logits, asked, vocab_size=vocab_size, mask_id=mask_id, reading=reading)
    assert torch.equal(logits, before) or logits.isnan().any()
    for number, row in enumerate(rows):
        expected, likely = oracle(row, vocab_size, mask_id, reading, params[number], counters[number], penalties[number])
        assert drawn.tokens[number] == expected[0]
        found = (drawn.probabilities[number], drawn.entropies[number], drawn.margins[number])
        assert [float(x) for x in found] == pytest.approx(expected[1:], abs=2e-5, rel=2e-5)
        assert drawn.noise[number] == draws.integer(draws.key(*counters[number], "renoise"), 0, vocab_size)
        for place, (token, probability) in enumerate(likely):
            assert float(drawn.best_probabilities[number, place]) == pytest.approx(probability, abs=2e-5)
            if probability > 0.0:
                assert drawn.best_ids[number, place] == token
        if reading.best:
            assert (drawn.best_probabilities[number, len(likely) :] == 0.0).all()


def test_no_id_is_forbidden_without_a_mask():
    drawn = sample(torch.tensor([[1.0, 2.0, 5.0]]), Settings(), vocab_size=3, mask_id=None)
    assert drawn.tokens.tolist() == [2]


def test_a_row_does_not_depend_on_its_mates():
    logits = torch.randn(6, 50, generator=torch.Generator().manual_seed(0))
    params = [(0.0, 0, 1.0, 0.0), (0.7, 5, 0.8, 0.1), (0.0, 3, 1.0, 0.0)] * 2
    counters = [(number, 10 * number, 2) for number in range(6)]
    together = sample(logits, settings_of(params, counters), vocab_size=50, mask_id=0)
    for number in range(6):
        alone = sample(
            logits[number : number + 1], settings_of(params[number : number + 1], counters[number : number + 1]),
            vocab_size=50, mask_id=0,
        )  # fmt: skip
        assert together.tokens[number] == alone.tokens[0]
        assert float(together.probabilities[number]) == pytest.approx(float(alone.probabilities[0]), rel=1e-6)


def test_frequencies_are_the_softmax():
    count = 20_000
    logits = torch.tensor([[0.0, 1.0, 2.0, -1.0]]).expand(count, -1)
    hot = Settings(torch.ones(count), noise=Noise(torch.full((count,), 7), torch.arange(count), torch.zeros(count).long()))
    tokens = sample(logits, hot, vocab_size=4, mask_id=4).tokens
    shares = torch.bincount(tokens, minlength=4) / count
    torch.testing.assert_close(shares, logits[0].softmax(-1), atol=0.015, rtol=0)


@pytest.mark.parametrize("temperature", [1e-30, 1e-44, 1e30])
def test_extreme_temperatures_stay_finite(temperature):
    logits = torch.tensor([[3.0, 1.0, 2.0]])
    one = torch.zeros(1, dtype=torch.int64)
    hot = Settings(torch.tensor([temperature]), noise=Noise(one, one, one))
    drawn = sample(logits, hot, vocab_size=3, mask_id=3)
    assert drawn.tokens[0] >= 0
    assert 0 < drawn.probabilities[0] <= 1
