"""Facts of strategies with a cache of unfinished positions, beyond the laws of all strategies."""

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from dlstep.core import Config, Strategy, init
from dlstep.rules.quota import Quota
from dlstep.strategies.dual_cache import DualCache
from dlstep.strategies.fast_dllm_v2 import FastDLLMV2
from dlstep.testing.generators import batches, cases, hyperparameters, specs
from dlstep.testing.harness import CaseRun, answered_alone, run_case
from dlstep.testing.shadow import ShadowDriver

from .shapes import SPEC, samplings

CACHED = (FastDLLMV2, DualCache)


@pytest.mark.parametrize("strategy", CACHED)
@given(data=st.data())
def test_no_forward_sees_an_older_token(strategy: type[Strategy], data: st.DataObject) -> None:
    """Stores are older than the canvas around them, never than their own token."""

    def watch(run: CaseRun) -> None:
        step, device = run.steps[-1], run.driver
        assert isinstance(device, ShadowDriver)
        for span in step.plan.spans:
            sequence = step.planned.find(span.who.id)
            assert sequence is not None
            tokens = sequence.tokens(0, span.rows.end)
            for position in (*range(span.rows.start), *range(span.rows.stop, span.rows.end)):
                held = device.now.slots[device.slot(span.who.seq_id, position)]
                assert (held.position, held.token) == (position, tokens[position]), f"{held} is read, not {tokens[position]}"

    run_case(data.draw(cases(strategy)), watch=watch)


@pytest.mark.parametrize("strategy", CACHED)
@given(data=st.data())
def test_unmasked_tokens_stay_and_come_block_by_block(strategy: type[Strategy], data: st.DataObject) -> None:
    case = data.draw(cases(strategy))
    size = case.strategy.block_size  # type: ignore[attr-defined]
    for span, before, after in samplings(run_case(case)):
        was = [position for block in before.window for position in block.masked]
        left = [position for block in after.window for position in block.masked]
        for position in range(len(before.request.prompt), after.window[-1].end):
            if position < was[0] or (position < before.window[-1].end and position not in was):
                assert after.tokens(position, position + 1) == before.tokens(position, position + 1)
        base = 0 if strategy is FastDLLMV2 else len(before.request.prompt)
        part = (was[0] - base) // size
        assert all((position - base) // size == part for position in span.wanted.sampled), "two parts are unmasked at once"
        due = tuple(position for position in was if (position - base) // size == part)
        assert span.wanted.sampled == (due if span.rows.stop > before.window[0].start else due[:1])
        if not after.finish_info:
            assert after.settled == left[0]


@given(data=st.data())
def test_caches_change_nothing_where_nothing_is_read_from_them(data: st.DataObject) -> None:
    """Where a block takes one forward, or is all that a forward would feed anyway, answers do not depend on the cache."""
    strategy = data.draw(st.sampled_from(CACHED))
    value = data.draw(hyperparameters(strategy))
    spec = data.draw(specs(value))
    (request,) = data.draw(batches(value, most=1))
    request = replace(request, params=replace(request.params, strategy_options=()), automaton=None)  # it adds passes
    if isinstance(value, FastDLLMV2):
        caches: list[Strategy] = [replace(value, fdv2_use_block_cache=use) for use in (True, False)]
        alone_in_block = request.prompt and len(request.prompt) + request.params.max_tokens <= value.block_size
        at_once = [replace(cache, accept_threshold=0.0) for cache in caches]
    else:
        assert isinstance(value, DualCache)
        caches = [replace(value, cache=cache) for cache in ("dual", "prefix", "none")]
        at_once = [replace(cache, rule=Quota(1)) for cache in caches]
        alone_in_block = request.params.max_tokens <= value.block_size
        caches.pop()  # without a cache the prompt sees the answer as it is
    for values in (at_once, caches if alone_in_block else []):
        finished = [answered_alone(spec, each, request) for each in values]
        outcomes = {(one.answer, one.finish, one.error, one.probabilities) for one in finished}
        assert len(outcomes) <= 1


def test_models_and_values_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="head_shift is 0"):
        init(Config(replace(SPEC, head_shift=0)), FastDLLMV2())
    with pytest.raises(ValueError, match="no mask id"):
        init(Config(replace(SPEC, mask_id=None)), FastDLLMV2())
    with pytest.raises(ValueError, match="no mask id"):
        init(Config(replace(SPEC, mask_id=None)), DualCache())
    with pytest.raises(ValueError, match="buffer_size must be more than 1, got 1"):
        FastDLLMV2(buffer_size=1)
    with pytest.raises(ValueError, match=r"DualCache\.cache must be"):
        DualCache(cache="suffix")  # type: ignore[arg-type]
