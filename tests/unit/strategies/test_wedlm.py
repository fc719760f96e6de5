"""WeDLM: what it refuses by name, which rows it feeds in which order, and that a window of one is autoregressive."""

import pytest
from hypothesis import given, strategies as st

from dlstep.core import Request, Samples, SamplingParams, SpanSamples, add, commit, init, schedule
from dlstep.rules.quota import Quota
from dlstep.rules.remdm import ReMDM
from dlstep.rules.threshold import Threshold
from dlstep.strategies.wedlm import WeDLM
from dlstep.testing.generators import MASK

from ...helpers.decoding import CONFIG
from ...helpers.refusals import refused


@pytest.mark.parametrize("rule", [Quota(), ReMDM()])
def test_rules_that_plan_a_whole_block_or_remask_are_refused(rule):
    with refused("rule", "unsupported"):
        init(CONFIG, WeDLM(rule=rule))


@given(data=st.data(), size=st.integers(1, 6), length=st.integers(1, 5), tokens=st.integers(1, 12))
def test_known_tokens_are_fed_before_masks_each_at_its_position(data, size, length, tokens):
    """With a window of one, each pass settles one token, as autoregressive decoding does."""
    request = Request(0, (1,) * length, SamplingParams(max_tokens=tokens, ignore_eos=True))
    state, passes = add(init(CONFIG, WeDLM(block_size=size, rule=Threshold())), request), 0
    while not state.done:
        plan = schedule(state)
        (span,), rows = plan.spans, plan.spans[0].rows
        at = rows.positions or tuple(range(rows.start, rows.stop))
        masks = [index for index, token in enumerate(rows.tokens) if token == MASK]
        assert masks == [*range(len(at) - len(masks), len(at))] and sorted(at) == [*range(rows.start, rows.stop)]
        assert tuple(at[index] for index in masks) == span.wanted.sampled and len(masks) <= size
        assert list(at[: masks[0]]) == sorted(at[: masks[0]])
        chances = data.draw(st.lists(st.sampled_from([0.5, 0.95]), min_size=len(masks), max_size=len(masks)))
        samples = SpanSamples(span.wanted.sampled, tuple(chances))
        state, passes = commit(state, Samples(plan, (samples,))), passes + 1
    assert state.finished[0].answer == tuple(range(length, length + tokens))
    assert passes <= tokens and (size > 1 or passes == tokens)
