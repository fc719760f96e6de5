"""What edit sampling and `dmax` have in common: how they open, revise and end their blocks."""

import pytest
from hypothesis import given, strategies as st

from dlstep.core import Request, SamplingParams, SpanSamples, add, commit, init, schedule
from dlstep.strategies.dmax import DMax
from dlstep.strategies.multi_bd_edit import MultiBDEdit
from dlstep.testing.scripted import ScriptedDriver

from .revising import CONFIG, DMAXES, EDITS, EOS, RANDOMS, decode


@given(rule=EDITS | DMAXES, random=RANDOMS)
def test_every_answer_position_of_an_open_block_is_wanted(rule, random):
    for step in decode(rule, random):
        assert list(step.span.wanted.sampled) == [position for block in step.blocks for position in step.editable(block)]


@given(rule=EDITS | DMAXES, random=RANDOMS)
def test_a_block_opens_behind_a_stable_one(rule, random):
    for step in decode(rule, random):
        new = step.after.progress.window[-1:] if step.after.finish is None else ()
        if not new or new[0].opened < step.after.steps or len(step.after.progress.window) < 2:
            continue
        last = next(block for block in step.blocks if block.end == new[0].start)
        filled = [p for p in step.editable(last) if p not in last.masked]
        same = [p for p in filled if step.answer(p)[0] == last.tokens[p - last.start]]
        if rule.most_forwards > step.after.steps - last.opened:
            assert not filled or len(same) / len(filled) >= rule.token_stability_threshold - 1e-9
        assert not any(EOS in block.tokens for block in step.after.progress.window) or step.before.request.params.ignore_eos


@given(rule=EDITS | DMAXES, prompt=st.integers(1, 12))
def test_what_was_never_sampled_is_not_stable(rule, prompt):
    (sequence,) = add(init(CONFIG, rule), Request(0, (1,) * prompt, SamplingParams(max_tokens=20))).waiting
    first = sequence.progress.window[0]
    ahead = first.unmasked_share >= rule.add_block_threshold and not rule.token_stability_threshold and rule.buffer_size > 1
    assert (len(sequence.progress.window) > 1) == ahead


@given(rule=EDITS | DMAXES, random=RANDOMS)
def test_no_block_takes_more_forwards_than_it_may(rule, random):
    seen = {}
    for step in decode(rule, random, ignore_eos=True):
        first = step.blocks[0]
        seen[first.start] = step.after.steps - first.opened
        assert seen[first.start] <= rule.most_forwards
        if seen[first.start] == rule.most_forwards:
            assert step.after.progress.settled >= min(first.end, step.after.request.limit)
    assert len(step.after.answer) == step.after.request.params.max_tokens


def scripted(strategy, answers, **params):
    """A request of two prompt tokens after the forwards that say `answers`."""
    rows = iter(answers)

    def say(span):
        tokens, chances = next(rows)
        best = strategy.sample_spec.best
        return SpanSamples(tokens, chances, best_ids=tokens * best, best_probabilities=chances * best)

    state = add(init(CONFIG, strategy), Request(0, (0, 1), SamplingParams(**{"max_tokens": 4, **params})))
    for _ in answers:
        state = commit(state, ScriptedDriver(say).run(schedule(state)))
    sequence = state.find(0)
    assert sequence is not None
    return sequence


SURE, UNSURE = 0.95, 0.5


@pytest.mark.parametrize("strategy", [MultiBDEdit(block_size=4), DMax(block_size=4, buffer_size=4)])
def test_an_end_of_sequence_that_is_revised_ends_nothing(strategy):
    provisional = scripted(strategy, [((EOS, 5), (SURE, UNSURE))], max_tokens=2)
    assert provisional.finish is None and provisional.tokens(2, 3) == (EOS,)
    answers = [((EOS, 5), (SURE, UNSURE)), ((4, 5), (SURE, UNSURE)), ((4, 5), (SURE, UNSURE)), ((4, 5), (SURE, UNSURE))]
    done = scripted(strategy, answers[: 3 if isinstance(strategy, DMax) else 4], max_tokens=2)
    assert (done.answer, done.finish) == ((4, 5), "length")


def test_edits_that_come_too_late_are_dropped():
    late = [((4, 5), (SURE, SURE)), ((6, 5), (SURE, SURE)), ((7, 5), (SURE, SURE)), ((8, 5), (SURE, SURE))]
    done = scripted(MultiBDEdit(block_size=4, max_post_edit_steps=2), late, max_tokens=2)
    assert (done.answer, done.probabilities, done.finish) == ((7, 5), (SURE, SURE), "length")
