"""Strided decoding: what it refuses by name, and how it is configured."""

from dataclasses import replace

import pytest

from dlstep.core import Config, Request, SamplingParams, Spec, add, init, refusal
from dlstep.strategies.strided import Strided
from dlstep.testing.generators import EOS, MASK, PIECES, VOCABULARY

from ...helpers.refusals import refused

SPEC = Spec(MASK, (EOS,), VOCABULARY, head_shift=1, pieces=PIECES)


@pytest.mark.parametrize("changes", [{"head_shift": 0}, {"mask_id": None}])
def test_models_that_do_not_fit_are_refused(changes):
    with refused("decoding_strategy", "unsupported"):
        init(Config(replace(SPEC, **changes)), Strided())


def test_pinned_tokens_are_refused_by_name():
    pinned = Request(0, (1, 2), SamplingParams(max_tokens=4, pinned=((1, 5),)))
    reason = refusal(Config(SPEC), Strided(), pinned)
    assert (reason.field, reason.code) == ("pinned", "unsupported")


def test_requests_may_have_other_numbers_of_masks():
    params = SamplingParams(max_tokens=4, strategy_options=(("block_size", 0),))
    (sequence,) = add(init(Config(SPEC), Strided()), Request(0, (1, 2), params)).waiting
    assert sequence.request.strategy == Strided().autoregressive == Strided(block_size=0)
