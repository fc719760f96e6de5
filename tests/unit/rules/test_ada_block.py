"""Blocks of sizes that the rule chooses: as another rule, with pins, by delimiters of a request."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from dlstep.core import Request, SamplingParams
from dlstep.core.trace import from_json, to_json
from dlstep.rules.ada_block import AdaBlock
from dlstep.rules.quota import Quota
from dlstep.rules.threshold import Threshold
from dlstep.strategies.dual_cache import DualCache
from dlstep.testing.generators import MASK

from ...helpers.decoding import waiting
from .random_rows import REQUESTS, SALTS, answered


@given(
    request=REQUESTS,
    salt=SALTS,
    size=st.integers(1, 9),
    inner=st.sampled_from([Threshold(0.5), Threshold(0.9, inclusive=True), Quota(2), Quota()]),
    look_ahead=st.sampled_from([0.1, 0.25, 1.0]),
    cache=st.sampled_from(["none", "prefix", "dual"]),
)
def test_blocks_without_delimiters_have_the_canvas_size(request, salt, size, inner, look_ahead, cache):
    canvas = DualCache(size, cache, inner)
    expected = answered(canvas, request, salt)
    assert answered(replace(canvas, rule=AdaBlock((), 0.0, look_ahead, inner)), request, salt) == expected
    assert answered(replace(canvas, rule=AdaBlock((MASK,), 0.0, look_ahead, inner)), request, salt) == expected


@given(
    request=REQUESTS,
    salt=SALTS,
    pinned=st.sets(st.integers(0, 19), max_size=19),
    size=st.integers(1, 5),
    look_ahead=st.sampled_from([0.25, 1.0]),
    delimiters=st.sampled_from([(), tuple(range(0, MASK, 2))]),
)
def test_pinned_positions_that_a_block_gives_back_are_not_forwards(request, salt, pinned, size, look_ahead, delimiters):
    pairs = tuple([(place, 1) for place in sorted(pinned) if place < request.params.max_tokens - 1])
    request = replace(request, params=replace(request.params, pinned=pairs))
    answered(DualCache(size, "none", AdaBlock(delimiters, 0.0, look_ahead)), request, salt)


@pytest.mark.parametrize("given_ids", [(4, 9), [4, 9], (np.int64(4), 9), range(4, 10, 5)])
def test_a_request_may_bring_a_list_of_whole_numbers(given_ids):
    params = SamplingParams(max_tokens=6, strategy_options={"delimiters": given_ids, "accept_threshold": 0.5})
    assert params.strategy_options == (("accept_threshold", 0.5), ("delimiters", (4, 9)))
    assert from_json(to_json(params)) == params and hash(params) == hash(
        SamplingParams(max_tokens=6, strategy_options=params.strategy_options)
    )
    strategy = DualCache(cache="none", rule=AdaBlock())
    assert waiting(strategy, Request(0, (1,), params)).request.strategy == DualCache(
        cache="none", rule=AdaBlock((4, 9), inner=Threshold(0.5, inclusive=True))
    )
