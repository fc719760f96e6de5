"""The rules of DiffusionGemma, against the plainest loop that says them."""

# Requests that were added are found.
# pyright: reportArgumentType=false, reportOptionalMemberAccess=false

import pytest
from hypothesis import given, strategies as st

from dlstep.core import Config, Request, SamplingParams, SpanSamples, Spec, refusal
from dlstep.core.draws import below, integer, integers, key
from dlstep.strategies.diffusion_gemma import DiffusionGemma
from dlstep.testing.generators import cases
from dlstep.testing.harness import run_case
from dlstep.testing.scripted import ScriptedDriver
from dlstep.text.dfa import regex
from dlstep.text.token_automaton import token_automaton

from ...helpers.decoding import passes, waiting

VOCABULARY, EOS = 11, 10
SPEC = Spec(None, (EOS,), VOCABULARY)
MAX_MODEL_LEN = 64


@given(seed=st.integers(-(2**70), 2**70), start=st.integers(0, 2**40), count=st.integers(0, 9), bound=st.integers(1, 2**31))
def test_many_draws_at_once_are_the_single_ones(seed, start, count, bound):
    singly = tuple(integer(key(seed, position, 3, "open"), bound) for position in range(start, start + count))
    assert integers(seed, start, start + count, 3, "open", bound) == singly
    uniformly = [
        (integer(key(seed, position, 5, "choose"), 1 << 23) + 0.5) / (1 << 23) for position in range(start, start + count)
    ]
    for chance in (0.0, 0.3, 1.0, bound / 2**31, *uniformly):
        hit = [position for position, number in enumerate(uniformly, start) if number < chance]
        assert list(below(seed, start, start + count, 5, "choose", chance)) == hit


@given(data=st.data())
def test_a_pass_encodes_final_positions_causally_or_denoises_a_whole_canvas(data):
    """The last canvas is not encoded."""
    for step in run_case(data.draw(cases(DiffusionGemma))).steps:
        for span, sequence in step.planned_spans():
            rows, sampled, length = span.rows, span.wanted.sampled, sequence.request.strategy.canvas_length
            if rows.mode == "encode":
                assert (rows.final_rows, sampled, rows.carry) == (len(rows.tokens), (), "none")
                assert (rows.grid.origin, rows.grid.size) == (0, 1) and rows.stop < sequence.request.limit
            else:
                assert (rows.grid.origin, rows.grid.size, rows.end) == (rows.start, length, rows.stop)
                assert (rows.final_rows, rows.query_only, len(rows.tokens)) == (0, 0, length)


@pytest.mark.parametrize("given_", [{"temperature": 0.5}, {"top_k": 3}, {"top_p": 0.9}, {"min_p": 0.1}], ids=str)
def test_sampling_settings_of_a_request_are_refused(given_):
    request = Request(0, (1,), SamplingParams(max_tokens=4, **given_))
    config = Config(SPEC, 4, 64, MAX_MODEL_LEN, 64, 1)
    reason = refusal(config, DiffusionGemma(canvas_length=4), request)
    assert ([reason.field], reason.code) == ([*given_], "unsupported")


def test_spans_hold_the_temperature_and_nothing_that_may_be_long():
    """Parameters of forwards are kept for later ones, so that texts of requests in them would stay in memory."""
    strategy = DiffusionGemma(canvas_length=4, max_denoising_steps=3)
    long = SamplingParams(8, stop_token_ids=(3, 4), pinned={2: 5}, seed=7, max_nfe=9)
    sequence = waiting(strategy, Request(0, (1, 2), long), Config(SPEC, 4, 20, MAX_MODEL_LEN))
    assert strategy.schedule(sequence, SPEC).who.params == SamplingParams(temperature=strategy.temperature(3))


AB_OR_BA = token_automaton("ab|ba", regex("ab|ba"), (b"a", b"b", *[b""] * 9), (EOS,))
A, B, VOID, NOISE = 0, 1, 9, 5


def under_a_constraint(steps, forwards):
    """The canvas of an answer `ab` or `ba` and a position past it after each forward: its two tokens, and their entropies."""
    script = iter(forwards)

    def say(span):
        tokens, entropies = next(script)
        answer, (*inside, past) = (*tokens, VOID), [mask.ids() for mask in span.wanted.masks]
        assert len(past) == VOCABULARY and all(token in ids for token, ids in zip(tokens, inside, strict=True))
        chances = tuple([1.0 - entropy for entropy in (*entropies, 0.0)])
        return SpanSamples(answer, chances, (*entropies, 0.0), (), answer, chances, (NOISE,) * 3)

    value = DiffusionGemma(canvas_length=3, max_denoising_steps=steps, stability_threshold=0)
    request = Request(0, (4, 4), SamplingParams(max_tokens=2), automaton=AB_OR_BA)
    found, sequence = [], None
    for _, span, sequence in passes(Config(SPEC), value, request, ScriptedDriver(say)):
        found += [sequence.progress.window[0].tokens] * bool(span.wanted.sampled)  # not after the pass that stores the prompt
    assert next(script, None) is None and sequence.answer in ((A, B), (B, A))
    return found


def test_accepted_tokens_fit_together():
    """Of `aa`, the more certain one is accepted; the other position becomes noise, which no constraint binds."""
    canvas = under_a_constraint(2, [((A, A), (0.02, 0.01)), ((B, A), (0.1, 0.2))])
    assert canvas[0] == (NOISE, A, VOID) and canvas[1][:2] == (B, A)


def test_a_canvas_whose_tokens_contradict_one_another_takes_more_passes():
    """The last pass commits the first of `aa`; the next one denoises the rest, whatever it predicts for the first."""
    canvas = under_a_constraint(1, [((A, A), (0.1, 0.2)), ((B, B), (0.1, 0.2))])
    assert canvas[0][:2] == (A, NOISE) and canvas[1][:2] == (A, B)


def test_committed_tokens_are_given_while_the_rest_is_denoised():
    """A canvas commits early and keeps the first of `aa`; the next pass is unsure, and does not change it."""
    sure, unsure = (0.001, 0.002), (1.0, 1.0)
    canvas = under_a_constraint(8, [((A, A), sure), ((B, B), unsure), ((B, B), sure)])
    assert [tokens[:2] for tokens in canvas] == [(A, NOISE), (A, B), (A, B)]
