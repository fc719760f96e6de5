"""DreamOn: expansions, removals and their limits by hand, and what it refuses by name."""

import pytest
from hypothesis import given, strategies as st

from dlstep.core import Config, Request, Samples, SamplingParams, SpanSamples, Spec, add, commit, init, schedule
from dlstep.core.contract import sequence_after
from dlstep.core.lifecycle import sized
from dlstep.processors.min_tokens import MinTokens
from dlstep.strategies.dreamon import DreamOn
from dlstep.testing.generators import EOS, MASK, MAX_MODEL_LEN, PIECES, VOCABULARY

from ...helpers.decoding import waiting
from ...helpers.refusals import refused

EXPAND = 7
SPEC = Spec(MASK, (EOS,), VOCABULARY, 1, pieces=PIECES)
CONFIG = Config(SPEC, page_size=4, num_pages=32, max_model_len=64, max_num_batched_tokens=128)


def decoded(strategy, params, *passes):
    """The tokens of the window after each pass; each pass gives token and certainty by masked position."""
    request = Request(0, (1, 2), params)
    state, windows = add(init(CONFIG, strategy), request), []
    for answer in passes:
        plan = schedule(state)
        sampled = plan.spans[0].wanted.sampled
        tokens, entropies = zip(*[answer.get(position, (9, 1.0)) for position in sampled], strict=True)
        state = commit(state, Samples(plan, (SpanSamples(tokens, (0.5,) * len(tokens), entropies),)))
        sequence = state.find(0)
        windows.append(tuple(None if token == MASK else token for block in sequence.progress.window for token in block.tokens))
    return state.find(0), windows


@pytest.mark.parametrize("right, window", [(True, (5,)), (False, (5, None))])
def test_expansions_add_a_mask_and_ends_remove_theirs(right, window):
    strategy, params = DreamOn(EXPAND, initial_masks=2, delete_right=right), SamplingParams(max_tokens=4, suffix=(3, EOS))
    done, windows = decoded(strategy, params, {3: (EXPAND, 0.1)}, {2: (5, 0.1)}, {3: (EOS, 0.1)})
    assert windows[:2] == [(None,) * 3, (5, None, None)]
    assert (
        (windows[2], done.finish, done.answer) == ((), "stop", (5,)) if right else (windows[2], done.finish) == (window, None)
    )


def test_an_answer_may_be_empty_and_a_full_window_does_not_expand():
    done, _ = decoded(DreamOn(EXPAND), SamplingParams(max_tokens=4), {2: (EOS, 0.0)})
    assert (done.answer, done.probabilities, done.finish, done.best_of(2, 2)) == ((), (), "stop", ())
    for strategy in (DreamOn(EXPAND, initial_masks=3), DreamOn(EXPAND, initial_masks=1, expand_budget=0)):
        params = SamplingParams(max_tokens=3, processors=(MinTokens(1),))
        state = add(init(CONFIG, strategy), Request(0, (1,), params))
        (span,) = schedule(state).spans
        assert [mask.ids() for mask in span.wanted.masks] == [[t for t in range(VOCABULARY) if t != EXPAND]] * len(
            span.wanted.sampled
        )
    state = add(init(CONFIG, DreamOn(EXPAND, initial_masks=2)), Request(0, (1,), SamplingParams(max_tokens=3)))
    assert not schedule(state).spans[0].wanted.masks


def test_several_expansions_at_once_stop_at_the_limit():
    strategy = DreamOn(EXPAND, initial_masks=2, tokens_per_pass=2)
    _, windows = decoded(
        strategy, SamplingParams(max_tokens=3), {2: (EXPAND, 0.0), 3: (EXPAND, 0.0)}, {2: (5, 0.0), 3: (6, 0.1)}
    )
    assert windows == [(None,) * 3, (5, 6, None)]


def test_a_device_may_lose_its_cache_after_a_position_before_settled_ones_was_removed():
    strategy = DreamOn(EXPAND, initial_masks=3, tokens_per_pass=2, delete_right=False)
    done, windows = decoded(strategy, SamplingParams(max_tokens=4), {2: (EOS, 0.0), 3: (5, 0.0)})
    assert windows == [(5, None)] and done.progress.replaced[0].position < done.progress.settled
    assert sequence_after(done, "forget", strategy.forget(done, SPEC)) == done


def test_min_tokens_lengthens_the_first_window():
    params = SamplingParams(max_tokens=9, processors=(MinTokens(6),))
    (block,) = waiting(DreamOn(), Request(0, (1,), params), CONFIG).progress.window
    assert len(block.tokens) == 6


def test_an_ignored_end_stays_in_the_answer():
    params = SamplingParams(max_tokens=2, ignore_eos=True)
    done, _ = decoded(DreamOn(EXPAND), params, {3: (EOS, 0.0)}, {2: (5, 0.0)})
    assert (done.answer, done.finish) == ((5, EOS), "length")


def test_models_and_requests_that_do_not_fit_are_refused():
    with refused("expand_token_id", "unknown_token_id"):
        init(CONFIG, DreamOn(VOCABULARY))
    for params, reason in (
        ({"suffix": (MASK,)}, "suffix: id 49 at position 0 is the mask"),
        ({"suffix": (3,) * 62}, "prompt: it has 2 tokens and the suffix 62; max_model_len=64 leaves no room"),
        ({"pinned": {0: 5}}, "pinned: it has no effect in DreamOn"),
    ):
        done = add(init(CONFIG, DreamOn(EXPAND)), Request(0, (1, 2), SamplingParams(max_tokens=8, **params))).finished[0]
        assert done.finish == "rejected" and reason in done.error


@given(length=st.integers(1, 30), suffix=st.integers(0, 30), most=st.integers(1, 40))
def test_prompt_longest_answer_and_suffix_fit_the_model(length, suffix, most):
    request = Request(0, (1,) * length, SamplingParams(max_tokens=most, suffix=(3,) * suffix))
    end = DreamOn().fed_end(sized(request, MAX_MODEL_LEN))
    assert end <= MAX_MODEL_LEN or length + suffix >= MAX_MODEL_LEN
