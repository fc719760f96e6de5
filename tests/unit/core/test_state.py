"""Pages and prefixes that requests share; cache digests, equal for equal KV caches only."""

from dataclasses import fields, replace
from itertools import combinations

import pytest
from hypothesis import given, strategies as st

from dlstep.core import (
    Admission,
    Grant,
    Grid,
    Merge,
    Plan,
    Request,
    Rows,
    SamplingParams,
    SoftTokens,
    Span,
    SpanSamples,
    Wanted,
    Who,
    add,
    commit,
    init,
    next_cache_digest,
    schedule,
)
from dlstep.strategies.d2f import D2F
from dlstep.strategies.multi_bd import MultiBD
from dlstep.testing import ScriptedDriver, ShadowDriver

from ...helpers.decoding import CONFIG, SPEC
from ...helpers.spans import FIELDS, PARTS, changed
from .test_lifecycle import ONE_BLOCK, finish

COLD = SamplingParams()
BLENDS = SoftTokens((5, 6), (3, 4), (0.5, 0.25), Merge())
PLAIN_SPAN = Span(Who(7, 2, COLD, 0), Rows(4, (3, 1, 4), 9, Grid(0, 3)), Wanted((5, 6), (0, 0)))
BASES = {
    "plain": PLAIN_SPAN,
    "denoised": changed(PLAIN_SPAN, mode="denoise"),
    "held": changed(PLAIN_SPAN, carry="held"),
    "blended": changed(PLAIN_SPAN, soft=BLENDS),
}
# Other values of the fields of a span that reach the memory of a device.
SEEN = {
    "seq_id": [3],
    "start": [3, 5],
    "tokens": [(3, 1, 5), (3, 1), (1, 3, 4)],
    "end": [8, 12],
    "grid": [Grid(1, 3), Grid(0, 4)],
    "positions": [(4, 6, 5), (6, 4, 5)],
    "query_only": [1],
    "final_rows": [1, 2],
    "soft": [
        BLENDS,
        replace(BLENDS, positions=(4, 5)),
        replace(BLENDS, positions=(4, 6)),
        replace(BLENDS, ids=(4, 3)),
        replace(BLENDS, probabilities=(0.5, 0.5)),
        replace(BLENDS, merge=Merge("iter_smooth_topk")),
        replace(BLENDS, merge=Merge(renormalize=False)),
        replace(BLENDS, merge=Merge(weight=0.5)),
        SoftTokens((5,), (3, 4), (0.5, 0.25), Merge()),
    ],
    "mode": ["encode", "denoise"],
    "carry": ["none", "fresh", "held"],
    "draft": [True],
}
# The others only choose what is answered. What is sampled is in the rows; what is carried depends on the temperature, too.
UNSEEN = {
    "id",
    "sampled",
    "draws",
    "params",
    "seed",
    "joins",
    "penalty",
    "scored_ids",
    "masks",
    "so_far",
    "shift",
    "keeps_window",
}
PLAN = Plan(
    4,
    11,
    (BASES["plain"],),
    releases=(1,),
    preemptions=(5,),
    admissions=(Admission(2, (8,), 0),),
    grants=(Grant(2, (9,)),),
    num_pages=40,
)
PLANS = {
    "step": [5],
    "cache_digest": [12],
    "spans": [(), (BASES["plain"],) * 2],
    "releases": [(), (5,), (1, 5)],
    "preemptions": [(), (1,)],
    "admissions": [(), (Admission(3, (8,), 0),), (Admission(2, (7,), 0),), (Admission(2, (8,), 1),), (Admission(2, (8,)),)],
    "grants": [(), (Grant(3, (9,)),), (Grant(2, (9, 10)),)],
    "num_pages": [41],
}
ROWS = (SpanSamples((1, 2), (0.5, 0.5)),)


@pytest.mark.parametrize("base", BASES)
def test_cache_digest_depends_on_all_of_a_span_that_reaches_the_device(base):
    span = BASES[base]
    others = [changed(span, **{name: other}) for name, values in SEEN.items() for other in values]
    if base != "plain":
        others.append(changed(span, params=replace(COLD, temperature=0.5)))
    spans = {span, *others}
    assert len({next_cache_digest(replace(PLAN, spans=(each,)), ROWS) for each in spans}) == len(spans)


def test_every_field_of_a_span_and_of_a_plan_is_looked_at():
    assert [field.name for field in fields(Span)] == [*PARTS]
    assert SEEN.keys() | UNSEEN == FIELDS.keys() and not SEEN.keys() & UNSEEN
    assert PLANS.keys() | {"sample_spec"} == {field.name for field in fields(Plan)}


def test_cache_digest_depends_on_all_of_a_plan_and_its_samples_that_reaches_the_device():
    plans = [PLAN, *(replace(PLAN, **{name: other}) for name, values in PLANS.items() for other in values)]
    digests = [next_cache_digest(plan, ROWS) for plan in plans]
    digests += [
        next_cache_digest(PLAN, rows) for rows in ((), (SpanSamples((2, 1), (0.5, 0.5)),), (SpanSamples((1,), (0.5,)),))
    ]
    assert all(one != other for one, other in combinations(digests, 2))


def stored_rows(state, device):
    """The state at the end, and how many rows of final tokens were fed on the way."""
    rows = 0
    while not state.done:
        plan = schedule(state)
        rows += sum(span.rows.final_rows for span in plan.spans)
        state = commit(state, device.run(plan))
    return state, rows


@given(count=st.integers(2, 6), length=st.integers(1, 30), rows=st.sampled_from([16, 40, 256]), tail=st.booleans())
def test_equal_prompts_that_come_together_compute_their_full_pages_once(count, length, rows, tail):
    prompt = tuple(range(1, length + 1))
    params = SamplingParams(max_tokens=1, ignore_eos=True)
    state = init(replace(CONFIG, max_num_batched_tokens=rows), ONE_BLOCK)
    alone, _ = stored_rows(add(state, Request(0, prompt, params)), ShadowDriver(4, 64, SPEC))
    for number in range(count):
        own = (40 + number,) if tail else ()
        state = add(state, Request(number, prompt + own, params))
    done, fed = stored_rows(state, ShadowDriver(4, 64, SPEC))
    full = length // 4 * 4
    assert fed <= full + count * (length + tail - full), "a full page was computed twice"
    assert all(done.finished[number].finish == "length" for number in range(count)) and alone.done


def test_a_long_prefix_is_found_to_its_end_also_where_groups_are_longer_than_pages():
    config = replace(CONFIG, page_size=1, num_pages=300, max_model_len=128)
    device = ShadowDriver(1, 300, SPEC)
    prompt = tuple(1 + number % 40 for number in range(60))
    state = init(config, D2F(block_size=8, buffer_size=1))
    for number in range(2):
        state = add(state, Request(number, prompt, SamplingParams(max_tokens=8)))
        plan = schedule(state)
        state = finish(state, device)
    assert len(plan.admissions[0].shared) == 60, "a prefix that is stored was not found whole"


@given(size=st.integers(2, 5), first=st.integers(1, 20), second=st.integers(1, 20))
def test_prompts_share_pages_if_the_blocks_that_begin_at_their_ends_are_alike(size, first, second):
    config = replace(CONFIG, page_size=1, num_pages=300, max_model_len=64)
    device, text = ShadowDriver(1, 300, SPEC), tuple(range(1, 21))
    state = init(config, MultiBD(block_size=size, buffer_size=1, grid_origin="prompt_end"))
    for number, length in enumerate((first, second)):
        state = add(state, Request(number, text[:length], SamplingParams(max_tokens=1, ignore_eos=True)))
        plan = schedule(state)
        state = finish(state, device)
    shared = len(plan.admissions[0].shared)
    assert shared == (min(first, second) if first % size == second % size else 0)


def test_pages_that_led_to_an_error_are_not_found_again():
    state = add(init(CONFIG, ONE_BLOCK), Request(0, tuple(range(1, 13)), SamplingParams(max_tokens=8)))

    def broken(span):
        return SpanSamples((-1,) * len(span.wanted.sampled), (0.0,) * len(span.wanted.sampled))

    state = finish(state, ScriptedDriver(broken))
    assert state.finished[0].finish == "error" and not len(state.cache.index)
