"""Samples are what a driver answers: numbers that are no probabilities are refused where they enter the core."""

import math

import pytest
from hypothesis import given, strategies as st

from dlstep.core import Config, Request, Rows, Samples, SamplesMismatch, SamplingParams, Spec, add, commit, init, schedule
from dlstep.strategies.multi_bd import MultiBD
from dlstep.testing.generators import EOS, MASK, VOCABULARY

STATE = init(Config(Spec(MASK, (EOS,), VOCABULARY), page_size=4, num_pages=40, max_model_len=32), MultiBD(block_size=8))
STATE = add(add(STATE, Request(4, (1, 2), SamplingParams(max_tokens=20))), Request(7, (1,), SamplingParams(max_tokens=9)))
PLAN = schedule(STATE)
SIZES = [len(span.wanted) for span in PLAN.spans]
ANSWERS = st.tuples(*[st.lists(st.floats(0.0, 1.0), min_size=size, max_size=size) for size in SIZES])


def samples(answers: tuple[list[float], ...]) -> Samples:
    return Samples(PLAN, tuple([Rows((3,) * len(answer), tuple(answer)) for answer in answers]))


@given(ANSWERS)
def test_samples_take_probabilities(answers: tuple[list[float], ...]):
    assert samples(answers).line


@given(ANSWERS, st.data(), st.sampled_from([math.nan, math.inf, -math.inf, -1e-9, -1.0]))
def test_samples_refuse_what_is_no_probability(answers: tuple[list[float], ...], data: st.DataObject, wrong: float):
    index = data.draw(st.integers(0, len(SIZES) - 1))
    place = data.draw(st.integers(0, SIZES[index] - 1))
    answers[index][place] = wrong
    span = PLAN.spans[index]
    with pytest.raises(SamplesMismatch, match=f"step 0, request {span.id}: position {span.wanted[place]} came back with"):
        samples(answers)


@given(ANSWERS, st.data())
def test_a_failed_row_ends_its_request_alone(answers: tuple[list[float], ...], data: st.DataObject):
    index = data.draw(st.integers(0, len(SIZES) - 1))
    place = data.draw(st.integers(0, SIZES[index] - 1))
    answers[index][place] = 0.0
    rows = [Rows((3,) * len(answer), tuple(answer)) for answer in answers]
    tokens = (*rows[index].tokens[:place], -1, *rows[index].tokens[place + 1 :])
    rows[index] = Rows(tokens, rows[index].probabilities)
    state = commit(STATE, Samples(PLAN, tuple(rows)))
    ended = [sequence.request.id for sequence in state.finished.values() if sequence.finish == "error"]
    assert ended == [PLAN.spans[index].id]
    assert [sequence.request.id for sequence in state.running] == [span.id for span in PLAN.spans if span.id not in ended]
