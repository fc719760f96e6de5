"""DMax: soft tokens, thresholds and constraints; tests/reference restates its decisions as a loop."""

# Requests that were added are found.
# pyright: reportArgumentType=false, reportOptionalMemberAccess=false

from dataclasses import replace

import pytest

from dlstep.core import Request, SamplingParams, SpanSamples, Spec, probe
from dlstep.strategies.dmax import DMax
from dlstep.testing import generators
from dlstep.testing.generators import Case, ample
from dlstep.testing.harness import run_case
from dlstep.testing.scripted import ScriptedDriver
from dlstep.text.dfa import regex
from dlstep.text.token_automaton import token_automaton

from ...helpers.decoding import passes
from ...helpers.refusals import refused
from .revising import CONFIG, EOS, MASK, SPEC, VOCABULARY, under_a_constraint


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
    driver = ScriptedDriver(lambda span: SpanSamples((0,) * len(span.wanted.sampled), (0.4,) * len(span.wanted.sampled)))
    *_, (_, _, done) = passes(CONFIG, value, request, driver)
    assert (done.answer, done.steps) == ((0, 0, 0, 0), 2)


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
