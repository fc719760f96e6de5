"""Rules that follow from no law alone, each for what it says: edges of ids, stops, seeds, prefixes and errors."""

import pickle
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, strategies as st

from dlstep.core import Refused, Request, SamplingParams, SpanSamples, abort, add, commit, init, positions, refusal, schedule
from dlstep.core.lifecycle import checked
from dlstep.core.request import processors_of
from dlstep.strategies import Blockwise, load, own
from dlstep.strategies.dmax import DMax
from dlstep.strategies.multi_bd import MultiBD
from dlstep.testing import ScriptedDriver, ShadowDriver
from dlstep.testing.generators import VOCABULARY, ample, batches, engines

from ...helpers.decoding import CONFIG, SPEC

ONE_BLOCK = MultiBD(block_size=4, buffer_size=1)


def says(*tokens, prompt):
    """A driver whose answer to any prompt of this length is `tokens`, all of them sure."""

    def rows(span):
        sampled = tuple(tokens[(position - prompt) % len(tokens)] for position in span.wanted.sampled)
        return SpanSamples(sampled, (1.0,) * len(sampled))

    return ScriptedDriver(rows)


def finish(state, driver):
    while not state.done:
        state = commit(state, driver.run(schedule(state)))
    return state


def test_the_last_id_of_the_tokenizer_comes_in_and_the_next_does_not():
    spec = replace(SPEC, mask_id=VOCABULARY, pieces=())
    state = init(replace(CONFIG, spec=spec), ONE_BLOCK)
    assert add(state, Request(0, (VOCABULARY - 1,))).waiting
    assert add(state, Request(0, (VOCABULARY + 1,))).finished[0].finish == "rejected"
    plain = replace(CONFIG, spec=replace(spec, mask_id=0))
    for config, token in ((state.config, VOCABULARY + 1), (plain, VOCABULARY), (plain, -1), (plain, 0)):
        reason = refusal(config, ONE_BLOCK, Request(0, (token,)))
        assert (reason.field, reason.code) == ("prompt", "unknown_token_id")


@pytest.mark.parametrize("shift", [0, 1])
def test_a_pass_must_hold_a_window_and_the_row_before_it(shift):
    spec, request = replace(SPEC, head_shift=shift), Request(0, (5,))
    rows = ONE_BLOCK.rows_at_once(request) + shift
    config = replace(CONFIG, spec=spec, max_num_batched_tokens=rows)
    assert init(config, ONE_BLOCK) and refusal(config, ONE_BLOCK, request) is None
    less = replace(config, max_num_batched_tokens=rows - 1)
    with pytest.raises(Refused, match=f"is less than the {rows} rows"):
        init(less, ONE_BLOCK)
    assert f"must feed {rows} rows" in refusal(less, ONE_BLOCK, request).message


@given(st.data(), st.sampled_from(own()))
def test_a_checked_request_from_another_process_is_added_like_the_request(data, name):
    strategy, spec = data.draw(engines(load(name)))
    config = ample(spec)
    if strategy.autoregressive is None and not strategy.carries:
        config = replace(config, processors=processors_of({"min_tokens": {"count": 2}}))
    state = init(config, strategy)
    for request in data.draw(batches(strategy)):
        plain = add(state, request).find(request.id)
        value, reason = checked(config, strategy, request)
        assert (plain.finish == "rejected") == (reason is not None)
        if reason is None:
            sent = add(state, pickle.loads(pickle.dumps(value))).find(request.id)
            assert sent == plain and (plain.request.strategy is strategy) <= (sent.request.strategy is strategy)


def test_a_checked_request_is_not_checked_again():
    asked = []

    @dataclass(frozen=True, slots=True)
    class Asked(Blockwise):
        def refusal(self, spec, request):
            asked.append(request.id)
            return

    state = init(CONFIG, Asked(block_size=4))
    value, _ = checked(CONFIG, state.strategy, Request(7, (1, 2)))
    assert asked == [0, 7] and add(state, value).waiting and asked == [0, 7]


def test_an_aborted_answer_keeps_what_was_settled():
    state = add(init(CONFIG, MultiBD(block_size=8, buffer_size=1)), Request(0, (1, 2, 3, 4), SamplingParams(max_tokens=20)))

    def rows(span):
        return SpanSamples((5,) * len(span.wanted.sampled), (1.0,) * 2 + (0.1,) * (len(span.wanted.sampled) - 2))

    state = commit(state, ScriptedDriver(rows).run(schedule(state)))
    (sequence,) = state.running
    assert sequence.progress.final < sequence.progress.settled == 6
    assert abort(state, 0).finished[0].answer == (5, 5)


def test_positions_past_the_shared_ones():
    edge = 1 << 18
    for start, stop in ((edge - 2, edge), (edge - 2, edge + 3), (edge + 1, edge + 4)):
        assert positions(start, stop) == tuple(range(start, stop))


def test_releases_are_planned_once():
    state, device = init(CONFIG, ONE_BLOCK), ShadowDriver(4, 64, SPEC)
    for number in range(40):
        state = add(state, Request(number, (1, 2, 3), SamplingParams(max_tokens=4)))
        state = commit(state, device.run(schedule(state)))
        assert len(state.releases) <= 1
        state = abort(state, number - 1)


HARMLESS = {"accept_threshold": 0.25, "token_merge_mode": "iter_smooth_topk", "token_merge_weight": 0.5}


@given(
    culprit=st.sampled_from([("block_size", 8), ("token_merge_top_k", 4), ("buffer_size", 50)]),
    order=st.permutations(range(4)),
    longer=st.booleans(),
)
def test_refused_option_is_the_one_that_does_not_fit(culprit, order, longer):
    """Whatever other options the request sets, and in which order."""
    options = [*HARMLESS.items(), culprit]
    params = SamplingParams(max_tokens=40 if longer else 4, strategy_options=dict(options[place] for place in order))
    base = DMax(block_size=4)
    reason = refusal(replace(CONFIG, max_num_batched_tokens=32), base, Request(0, (1, 2), params))
    assert reason is not None and reason.field == culprit[0]
    both = replace(params, strategy_options=dict(HARMLESS, block_size=8, token_merge_top_k=4))
    assert refusal(CONFIG, base, Request(0, (1, 2), both)).field == "strategy_options"
