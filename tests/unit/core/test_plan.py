"""Plans and samples: scored ids of sampled positions, and numbers that are no probabilities."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from dlstep.core import PLAIN, Request, Samples, SamplesMismatch, SampleSpec, SamplingParams, SpanSamples, commit, schedule
from dlstep.core.plan import next_cache_digest
from dlstep.rules.credit import Credit
from dlstep.strategies.multi_bd import MultiBD
from dlstep.testing.generators import MASK, VOCABULARY

from ...helpers.decoding import CONFIG, with_requests
from ...helpers.named_plans import answered, plan_of
from ...helpers.refusals import refused


def test_samples_have_a_probability_for_each_scored_id():
    plan = plan_of((1, 2) * 4, SampleSpec(scored=2))
    assert answered(plan, *(0.1,) * 8).spans[0].scored_probabilities == (0.1,) * 8
    for count in (0, 4, 7, 9):
        with pytest.raises(
            SamplesMismatch, match=f"step 0, request 0: 8 scored_probabilities were requested, {count} came back"
        ):
            answered(plan, *(0.1,) * count)
    assert answered(plan_of((1,) * 4, SampleSpec(scored=2)), *(0.1,) * 4).spans  # of a request whose rule scores fewer
    assert answered(plan_of((), SampleSpec(scored=2))).spans


def test_sample_spec_covers_no_more_scored_ids_than_it_has():
    assert not SampleSpec(scored=2).lacking(SampleSpec(scored=2)) and not SampleSpec(scored=2).lacking(PLAIN)
    assert SampleSpec(scored=1).lacking(SampleSpec(scored=2)) == "scored=2"
    needed = SampleSpec(frozenset({"noise", "margin"}), "lowest")
    assert PLAIN.lacking(needed) == "statistics=['margin', 'noise'], ties=lowest"


def test_trimmed_rows_keep_scored_probabilities():
    rows = SpanSamples((1, 2), (0.5, 0.5), best_ids=(1, 2), best_probabilities=(0.5, 0.5), scored_probabilities=(0.1, 0.2))
    assert rows.trimmed(SampleSpec(best=1, scored=2), SampleSpec(scored=1)) == replace(rows, best_ids=(), best_probabilities=())


def test_scored_ids_do_not_change_the_cache_digest():
    """What the device stores does not depend on the ids that are scored."""
    one, other = plan_of((1, 2) * 4, SampleSpec(scored=2)), plan_of((3, 4) * 4, SampleSpec(scored=2))
    assert next_cache_digest(one, ()) == next_cache_digest(other, ())
    assert answered(one, *(0.1,) * 8).cache_digest == answered(other, *(0.2,) * 8).cache_digest


ASKED = [Request(4, (1, 2), SamplingParams(max_tokens=20)), Request(7, (1,), SamplingParams(max_tokens=9))]
STATE = with_requests(CONFIG, MultiBD(block_size=8), ASKED)
PLAN = schedule(STATE)
SIZES = [len(span.wanted.sampled) for span in PLAN.spans]
ANSWERS = st.tuples(*[st.lists(st.floats(0.0, 1.0), min_size=size, max_size=size) for size in SIZES])
PLACES = st.sampled_from([(index, place) for index, size in enumerate(SIZES) for place in range(size)])


def samples(answers):
    return Samples(PLAN, tuple([SpanSamples((3,) * len(answer), tuple(answer)) for answer in answers]))


@pytest.mark.parametrize(
    "field, given, code",
    [
        ("statistics", frozenset({"variance"}), "invalid_value"),
        ("statistics", ["entropy"], "invalid_value"),
        ("ties", "middle", "invalid_value"),
        ("best", -1, "out_of_range"),
        ("scored", -1, "out_of_range"),
        ("scored", 1.5, "invalid_type"),
        ("tempered", 1, "invalid_type"),
    ],
)
def test_a_sample_specification_refuses_what_no_device_knows(field, given, code):
    with refused(field, code):
        SampleSpec(**{field: given})


@given(
    ANSWERS,
    PLACES,
    st.sampled_from([math.nan, math.inf, -math.inf, -1e-9, -1.0, 1.01, 1.5, 2.0, 1e300, 10**400, None, "0.5"]),
)
def test_samples_refuse_what_is_no_probability(answers, at, wrong):
    index, place = at
    answers[index][place] = wrong
    span = PLAN.spans[index]
    with pytest.raises(
        SamplesMismatch, match=rf"step 0, request {span.who.id}: probabilities\[{place}\]=.* came back: it must"
    ):
        samples(answers)


@pytest.mark.parametrize("token", [VOCABULARY, 10**6, 2**70, -1, -5, MASK, 1.0, True, None, "7"])
@pytest.mark.parametrize("stop", [(), ("abcd",)])
def test_commit_refuses_ids_that_no_token_has(token, stop):
    """Neither does such an id end in an answer, nor does it fail where its bytes are looked up."""
    state = with_requests(CONFIG, MultiBD(block_size=4), [Request(0, (1,), SamplingParams(max_tokens=8, stop=stop))])
    (span,) = (plan := schedule(state)).spans
    count = len(span.wanted.sampled)
    rows = SpanSamples((3,) * (count - 1) + (token,), (0.95,) * count)
    with pytest.raises(SamplesMismatch, match=r"request 0: id .* came back: it must be in \[0, 50\) and not the mask id 49"):
        commit(state, Samples(plan, (rows,)))


def test_commit_refuses_listed_ids_that_no_token_has_unless_their_probability_is_zero():
    state = with_requests(CONFIG, MultiBD(block_size=4, rule=Credit()), [Request(0, (1,))])
    (span,) = (plan := schedule(state)).spans
    count = len(span.wanted.sampled)
    for chance in (0.0, 0.01):
        ids, chances = (3, 4, 5, 6, 7, 8, 9, VOCABULARY), (0.95, 0.01, 0.01, 0.01, 0.01, 0.0, 0.0, chance)
        rows = SpanSamples((3,) * count, (0.95,) * count, best_ids=ids * count, best_probabilities=chances * count)
        if chance:
            with pytest.raises(SamplesMismatch, match=f"id {VOCABULARY} came back"):
                commit(state, Samples(plan, (rows,)))
        else:
            assert commit(state, Samples(plan, (rows,)))
