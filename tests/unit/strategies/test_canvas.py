"""Facts of strategies with a cache of unfinished positions, beyond the laws of all strategies."""

import pytest
from hypothesis import given, strategies as st

from dlstep.strategies.dual_cache import DualCache
from dlstep.strategies.fast_dllm_v2 import FastDLLMV2
from dlstep.testing.generators import cases
from dlstep.testing.harness import run_case
from dlstep.testing.shadow import ShadowDriver

from ...helpers.refusals import refused

CACHED = (FastDLLMV2, DualCache)


def samplings(run):
    """The spans that sampled and were committed, each with its sequence before and after."""
    found = []
    for step in run.steps:
        for span in step.plan.spans:
            before, after = step.before.find(span.who.id), step.after.find(span.who.id)
            if span.wanted.sampled and before.finish_info is None:
                found.append((span, before, after))
    return found


@pytest.mark.parametrize("strategy", CACHED)
@given(data=st.data())
def test_no_forward_sees_an_older_token(strategy, data):
    """Stores are older than the canvas around them, never than their own token."""

    def watch(run):
        step, device = run.steps[-1], run.driver
        assert isinstance(device, ShadowDriver)
        for span in step.plan.spans:
            sequence = step.planned.find(span.who.id)
            tokens = sequence.tokens(0, span.rows.end)
            for position in (*range(span.rows.start), *range(span.rows.stop, span.rows.end)):
                held = device.now.slots[device.slot(span.who.seq_id, position)]
                assert (held.position, held.token) == (position, tokens[position]), f"{held} is read, not {tokens[position]}"

    run_case(data.draw(cases(strategy)), watch=watch)


@pytest.mark.parametrize("strategy", CACHED)
@given(data=st.data())
def test_unmasked_tokens_stay_and_come_block_by_block(strategy, data):
    case = data.draw(cases(strategy))
    size = case.strategy.block_size
    for span, before, after in samplings(run_case(case)):
        was = [position for block in before.progress.window for position in block.masked]
        left = [position for block in after.progress.window for position in block.masked]
        for position in range(len(before.request.prompt), after.progress.window[-1].end):
            if position < was[0] or (position < before.progress.window[-1].end and position not in was):
                assert after.tokens(position, position + 1) == before.tokens(position, position + 1)
        base = 0 if strategy is FastDLLMV2 else len(before.request.prompt)
        part = (was[0] - base) // size
        assert all((position - base) // size == part for position in span.wanted.sampled), "two parts are unmasked at once"
        due = tuple(position for position in was if (position - base) // size == part)
        assert span.wanted.sampled == (due if span.rows.stop > before.progress.window[0].start else due[:1])
        if not after.finish_info:
            assert after.progress.settled == left[0]


def test_values_that_do_not_fit_are_refused():
    with refused("buffer_size", "out_of_range"):
        FastDLLMV2(buffer_size=1)
    with refused("cache", "invalid_value"):
        DualCache(cache="suffix")
