"""DMax: soft tokens, thresholds and constraints; tests/reference restates its decisions as a loop."""

# Requests that were added are found.
# pyright: reportArgumentType=false, reportOptionalMemberAccess=false

from dataclasses import replace
from random import Random

import pytest
from hypothesis import example, given, strategies as st

from dlstep.core import Request, SamplingParams, SpanSamples, Spec, add, commit, init, probe, schedule
from dlstep.strategies.dmax import DMax
from dlstep.testing import generators
from dlstep.testing.generators import Case, ample
from dlstep.testing.harness import run_case
from dlstep.testing.scripted import ScriptedDriver
from dlstep.text.dfa import regex
from dlstep.text.token_automaton import token_automaton

from ...helpers.refusals import refused
from .revising import (
    CHANCES,
    CONFIG,
    DMAXES,
    EOS,
    MASK,
    RANDOMS,
    SPEC,
    VOCABULARY,
    decode,
    under_a_constraint,
)


@given(rule=DMAXES, random=RANDOMS, temperature=st.sampled_from([0.0, 1.0]))
@example(rule=DMax(4, 2, token_merge_weight=0.0), random=Random(0), temperature=0.0)
def test_soft_tokens_are_what_the_last_forward_said_of_the_tokens_of_open_blocks(rule, random, temperature):
    last = None
    for step in decode(rule, random, temperature=temperature):
        unmasked = [p for b in step.blocks for p in step.editable(b) if p not in b.masked]
        soft = step.span.rows.soft
        if not rule.token_merge_weight or not unmasked:
            assert soft is None
        else:
            assert list(soft.positions) == unmasked
            merging = (rule.token_merge_mode, rule.token_merge_renormalize, rule.token_merge_weight)
            assert (soft.merge.mode, soft.merge.renormalize, soft.merge.weight) == merging
            top_k = soft.width
            assert top_k == rule.token_merge_top_k
            for index, position in enumerate(unmasked):
                row = last.span.wanted.sampled.index(position)
                ids, chances = (part[index * top_k : (index + 1) * top_k] for part in (soft.ids, soft.probabilities))
                assert ids == last.rows.best_ids[row * top_k : (row + 1) * top_k]
                assert chances == last.rows.best_probabilities[row * top_k : (row + 1) * top_k]
        last = step


@given(rule=DMAXES, thresholds=st.tuples(*[st.sampled_from(CHANCES)] * 2).map(sorted), seed=st.integers(0, 1000))
def test_a_lower_threshold_of_dmax_fills_no_less(rule, thresholds, seed):
    low, high = (next(decode(replace(rule, accept_threshold=each), Random(seed))) for each in thresholds)
    assert low.rows == high.rows
    left = [
        {p for block in step.after.progress.window for p in block.masked if p in step.span.wanted.sampled}
        for step in (low, high)
    ]
    assert left[0] <= left[1] and (thresholds[0] > 0.0 or not left[0])


@pytest.mark.parametrize(
    "options",
    [
        {"token_merge_top_k": 2},
        {"token_merge_weight": 0.5},
        {"token_merge_mode": "iter_smooth_topk", "token_merge_renormalize": False},
        {"token_merge_mode": "iter_smooth_topk", "token_merge_weight": 0.0, "token_merge_top_k": 2},
        {"token_merge_weight": 0.0, "token_merge_renormalize": False},
        {"token_merge_mode": "dmax"},
    ],
)
def test_an_option_that_would_do_nothing_is_an_error(options):
    field = list(options)[-1]
    with refused(field, "invalid_value" if field == "token_merge_mode" else "conflict"):
        DMax(**options)


def test_more_ids_than_the_model_has_cannot_be_merged():
    greedy = DMax(block_size=4, token_merge_mode="iter_smooth_topk", token_merge_top_k=VOCABULARY)
    reason = greedy.refusal(SPEC, probe(SPEC))
    assert (reason.field, reason.code) == ("token_merge_top_k", "out_of_range")
    assert not replace(greedy, token_merge_top_k=VOCABULARY - 1).refusal(SPEC, probe(SPEC))


PLAIN = DMax(block_size=4, token_merge_weight=0.0)


def test_a_fill_that_contradicts_leaves_masks_on_the_right():
    """The second of `aa` is dropped though it is more certain; then it is filled before the first one is refreshed."""
    answers = [((0, 0), (0.7, 0.99)), ((1, 1), (0.99, 0.5)), ((0, 1), (0.5, 0.5))]
    assert under_a_constraint(PLAIN, answers) == [(0, MASK), (0, 1), (0, 1)]


def test_a_sure_pass_ends_a_block_that_kept_all_of_it():
    """A refreshed token that was dropped is no convergence, however sure the network is."""
    assert under_a_constraint(PLAIN, [((0, 0), (0.95, 0.4)), ((0, 1), (0.95, 0.95))]) == [(0, MASK), (0, 1)]
    dropped = [((0, 0), (0.95, 0.4)), ((1, 1), (0.95, 0.95)), ((0, 1), (0.5, 0.5))]
    assert under_a_constraint(PLAIN, dropped) == [(0, MASK), (0, 1), (0, 1)]


def test_a_block_of_pinned_tokens_waits_for_the_one_before_it():
    """A pass samples nothing in the second block, which is full when it opens."""
    value = DMax(block_size=2, buffer_size=2, add_block_threshold=0.0, token_merge_weight=0.0)
    automaton = token_automaton("a*", regex("a*"), (b"a", *[b""] * 11), (EOS, MASK))
    request = Request(0, (5, 5), SamplingParams(max_tokens=4, pinned={2: 0, 3: 0}), automaton=automaton)
    state = add(init(CONFIG, value), request)
    driver = ScriptedDriver(lambda span: SpanSamples((0,) * len(span.wanted.sampled), (0.4,) * len(span.wanted.sampled)))
    while not state.done:
        state = commit(state, driver.run(schedule(state)))
    assert (state.finished[0].answer, state.finished[0].steps) == ((0, 0, 0, 0), 2)


@pytest.mark.parametrize("changes", [{"token_merge_top_k": 1}, {"token_merge_mode": "dmax_topk", "token_merge_top_k": 1}])
def test_a_fork_with_another_number_of_merged_tokens_feeds_plain_tokens_first(changes):
    """The shadow device refuses soft tokens at masked positions and past the answer."""
    weight = 0.0 if "token_merge_mode" in changes else 0.5
    smooth = DMax(3, token_merge_mode="iter_smooth_topk", token_merge_top_k=2, token_merge_weight=0.5)
    fork = (1, {**changes, "token_merge_weight": weight})
    for prompt in range(8):
        request = Request(0, (prompt,), SamplingParams(max_tokens=5, ignore_eos=True))
        run = run_case(
            Case(
                ample(Spec(generators.MASK, (generators.EOS,), generators.VOCABULARY, pieces=generators.PIECES)),
                smooth,
                (request,),
                (0,),
                forks=(fork,),
            )
        )
        assert len(run.state.finished[0].answer) == 5
        fed = [step.plan.spans[0].rows.soft for step in run.steps[:2]]
        assert fed[:2] == [None, None] and run.steps[1].plan.spans
