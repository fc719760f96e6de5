"""The shipped processors: which logits change, and by how much."""

import torch
from transformers import RepetitionPenaltyLogitsProcessor

from dlstep.core import Context, SamplingParams, SoFar, Spec
from dlstep.processors.logit_bias import LogitBias
from dlstep.processors.min_tokens import MinTokens
from dlstep.processors.repetition_penalty import RepetitionPenalty

SPEC = Spec(1, (2,), 12)
LOGITS = torch.randn(2, 12, generator=torch.Generator().manual_seed(1))


def context(*positions, tokens=(5, 6, 1, 7), **params):
    return Context(positions, SoFar(tokens, 2), SamplingParams(**params), SPEC)


def test_repetition_penalty_is_that_of_transformers_except_for_the_own_token():
    found = RepetitionPenalty(3.0).process(LOGITS.clone(), context(3, 4))
    penalised = RepetitionPenaltyLogitsProcessor(3.0)
    expected = [
        penalised(torch.tensor([ids]), row[None].clone()) for ids, row in zip([[5, 6, 1], [5, 6, 1, 7]], LOGITS, strict=True)
    ]
    assert torch.equal(found, torch.cat(expected))


def test_logit_bias_adds_and_ignores_unknown_ids():
    found = LogitBias({"3": 2, 99: 1.0}).process(LOGITS.clone(), context(2, 3))
    assert torch.equal(found - LOGITS, (LOGITS[:, 3:4] + 2.0 - LOGITS) * (torch.arange(12) == 3))


def test_no_token_ends_an_answer_before_its_minimum():
    for ignore_eos, stops in ((False, [2, 9]), (True, [9])):
        found = MinTokens(2).process(LOGITS.clone(), context(3, 4, stop_token_ids=(9,), ignore_eos=ignore_eos))
        assert (found != LOGITS).nonzero().tolist() == [[0, stop] for stop in stops]
        assert bool((found[0, stops] < -1e20).all())
