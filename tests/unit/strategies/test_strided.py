"""Strided decoding: requests may have other numbers of masks."""

from dlstep.core import Config, Request, SamplingParams, Spec
from dlstep.strategies.strided import Strided
from dlstep.testing.generators import EOS, MASK, VOCABULARY

from ...helpers.decoding import waiting


def test_requests_may_have_other_numbers_of_masks():
    params = SamplingParams(max_tokens=4, strategy_options=(("block_size", 0),))
    sequence = waiting(Strided(), Request(0, (1, 2), params), Config(Spec(MASK, (EOS,), VOCABULARY, head_shift=1)))
    assert sequence.request.strategy == Strided().autoregressive == Strided(block_size=0)
