"""Where an answer stops: ids and texts of a request."""

import pytest

from dlstep.core import Request, SamplingParams, add, init
from dlstep.rules.threshold import Threshold
from dlstep.strategies.multi_bd import MultiBD
from dlstep.testing.generators import EOS

from ...helpers.decoding import CONFIG
from .test_lifecycle import ONE_BLOCK, finish, says


@pytest.mark.parametrize("stops", [("cdab", "zz"), ("zz", "cdab")])
def test_a_long_stop_string_is_found_across_blocks_beside_a_short_one(stops):
    params = SamplingParams(max_tokens=16, stop=stops)
    done = finish(add(init(CONFIG, ONE_BLOCK), Request(0, (1, 2, 3, 4), params)), says(1, 1, 2, 3, 0, 1, 1, 1, prompt=4))
    assert (done.finished[0].answer, done.finished[0].finish) == ((1, 1, 2, 3, 0, 1), "stop")


@pytest.mark.parametrize(
    "tokens, options, answer, reason",
    [
        ((5, 5, 5, 6), {}, (5, 5, 5), "repetition"),
        ((5, 5, 5, 5), {"max_tokens": 4}, (5, 5, 5), "repetition"),
        ((6, 5, 5, 5), {"max_tokens": 4}, (6, 5, 5, 5), "length"),
        ((5, 5, 5, EOS), {}, (5, 5, 5), "repetition"),
        ((5, 5, EOS, 5), {}, (5, 5), "stop"),
        ((5, EOS, 6, 7), {"ignore_eos": True, "stop_token_ids": (7,)}, (5, EOS, 6), "stop"),
        ((1, 1, 1, 2), {"stop": ("bc",)}, (1, 1, 1), "repetition"),
        ((1, 1, 1, 2), {"stop": ("bbb",)}, (1, 1, 1), "stop"),
        ((0, 1, 1, 1), {"stop": ("ab",)}, (0, 1), "stop"),
        ((5, 5, 5, 6), {"max_nfe": 1}, (5, 5, 5), "repetition"),
        ((6, 5, 5, 5), {"max_nfe": 1}, (6, 5, 5, 5), "nfe_limit"),
    ],
)
def test_the_earliest_end_counts_if_a_pass_settles_several_tokens(tokens, options, answer, reason):
    params = SamplingParams(**{"max_tokens": 8, "max_repetition_run": 3, **options})
    at_once = MultiBD(block_size=4, buffer_size=1, rule=Threshold(accept_threshold=0.0))
    done = finish(add(init(CONFIG, at_once), Request(0, (9, 9, 9, 8), params)), says(*tokens, 9, 9, 9, 9, prompt=4))
    assert (done.finished[0].answer, done.finished[0].finish) == (answer, reason)
