"""Buffer policies: requests get options by how many are live, as if they had brought them; nothing else changes."""

import pytest
from hypothesis import given, settings, strategies as st

from benchmarks.buffer_policy import Rate, policy
from dlstep import LLM, SamplingParams
from dlstep.core import Refused
from dlstep.engine.buffer_policy import policy_of

POLICY = [
    {"max_requests": 2, "accept_threshold": 0.99, "buffer_size": 3},
    {"max_requests": 5, "accept_threshold": 0.6, "buffer_size": 2},
    {"accept_threshold": 0.2, "buffer_size": 1},
]
QUESTION = "Max has 53 shells. Later Max buys {} more. How many shells does Max have?"


@pytest.fixture(scope="module")
def llms():
    return LLM("tiny-bd", buffer_policy=POLICY, max_num_reqs=4), LLM("tiny-bd", max_num_reqs=4)


@settings(max_examples=8, deadline=None)
@given(count=st.integers(1, 8), own=st.sets(st.integers(0, 7)))
def test_answers_are_those_of_the_same_options_given_by_hand(llms, count, own):
    """`count` requests come together, so that all get the options for `count`; those in `own` bring options and keep them."""
    policy, plain = llms
    prompts = [QUESTION.format(number) for number in range(count)]
    rung = next(rung for rung in POLICY if count <= rung.get("max_requests", count))
    options = {name: value for name, value in rung.items() if name != "max_requests"}
    brought = SamplingParams(max_tokens=24, strategy_options={"accept_threshold": 0.8})
    asked = [brought if number in own else SamplingParams(max_tokens=24) for number in range(count)]
    by_hand = [brought if number in own else SamplingParams(max_tokens=24, strategy_options=options) for number in range(count)]
    found, expected = policy.generate(prompts, asked), plain.generate(prompts, by_hand)
    assert [(out.token_ids, out.steps) for out in found] == [(out.token_ids, out.steps) for out in expected]


def test_the_load_is_that_when_a_request_is_added(llms):
    policy, _ = llms
    first = policy.stream(QUESTION.format(3), SamplingParams(max_tokens=24))
    options = []
    streams = [first]
    for number in range(5):
        streams.append(policy.stream(QUESTION.format(number), SamplingParams(max_tokens=24)))
        live = [*policy.state.waiting, *policy.state.running]
        options.append(dict(max(live, key=lambda s: s.request.seq_id).request.params.strategy_options)["buffer_size"])
    assert options == [3, 2, 2, 2, 1]
    # What was chosen stays, however many came since.
    assert dict(live[0].request.params.strategy_options)["buffer_size"] == 3
    for stream in streams:
        stream.close()


@pytest.mark.parametrize("options", [{"accept_threshold": 7.0}, {"buffer_size": 0}, {"no_such_option": 1}])
def test_an_engine_refuses_options_that_it_would_refuse_in_a_request(llms, options):
    (by_hand,) = llms[1].generate(QUESTION, SamplingParams(strategy_options=options), progress=False)
    with pytest.raises(Refused) as at_start:
        LLM("tiny-bd", buffer_policy=[{"max_requests": 2, "buffer_size": 4}, options])
    assert by_hand.finish_reason == "rejected" and str(at_start.value) == f"buffer_policy.1.{by_hand.error}"


def test_a_session_has_no_policy(llms):
    session = llms[0].session()
    session.submit(QUESTION.format(1))
    assert next(iter(session.state.waiting)).request.params.strategy_options == ()


def test_the_measured_table_has_the_fastest_size_that_is_accurate_enough_and_can_be_read():
    accuracies = {1: 1.0, 2: 0.99, 4: 0.5}
    speeds = {(1, 1): 100, (1, 2): 120, (1, 4): 900, (8, 1): 160, (8, 2): 150, (8, 4): 10}
    rates = [Rate(load, size, speed, accuracies[size]) for (load, size), speed in speeds.items()]
    assert policy(rates, 0.98) == [{"max_requests": 2, "buffer_size": 2}, {"buffer_size": 1}]
    assert policy(rates, 0.5) == [{"max_requests": 2, "buffer_size": 4}, {"buffer_size": 1}]
    assert policy_of(policy(rates, 0.98)) is not None
