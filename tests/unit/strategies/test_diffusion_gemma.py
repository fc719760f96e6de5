"""The rules of DiffusionGemma, against the plainest loop that says them."""

# Requests that were added are found.
# pyright: reportArgumentType=false, reportOptionalMemberAccess=false

from array import array
from dataclasses import dataclass
from random import Random

import pytest
from hypothesis import given, strategies as st

from dlstep.core import (
    Config,
    Request,
    SamplingParams,
    SpanSamples,
    Spec,
    add,
    commit,
    init,
    refusal,
    schedule,
)
from dlstep.core.draws import below, integer, integers, key
from dlstep.strategies.diffusion_gemma import DiffusionGemma
from dlstep.testing.generators import hyperparameters
from dlstep.testing.scripted import ScriptedDriver
from dlstep.text.dfa import regex
from dlstep.text.token_automaton import token_automaton

from ...helpers.refusals import refused

VOCABULARY, EOS = 11, 10
SPEC = Spec(None, (EOS,), VOCABULARY)
MAX_MODEL_LEN = 64
# Sixty-fourths add up exactly, so that sums do not depend on their order.
ENTROPIES = st.lists(st.integers(0, 200).map(lambda number: number / 64), min_size=1, max_size=12).map(tuple)
BOUNDS = st.integers(1, 300).map(lambda number: number / 64)
GEMMAS = hyperparameters(DiffusionGemma).map(lambda value: value if isinstance(value, DiffusionGemma) else DiffusionGemma())


@given(steps=st.integers(1, 64), t_min=st.floats(0.0, 2.0), rise=st.floats(0.01, 2.0))
def test_the_temperature_falls_from_its_maximum_and_never_reaches_its_minimum(steps, t_min, rise):
    value = DiffusionGemma(max_denoising_steps=steps, t_min=t_min, t_max=t_min + rise)
    falling = [value.temperature(remaining) for remaining in range(steps, 0, -1)]
    assert falling[0] == pytest.approx(value.t_max, rel=1e-6)
    assert falling == sorted(set(falling), reverse=True) and falling[-1] > t_min
    for remaining, temperature in zip(range(steps, 0, -1), falling, strict=True):
        assert array("f", [temperature])[0] == temperature  # in single precision
        assert temperature == pytest.approx(t_min + (value.t_max - t_min) * remaining / steps, rel=1e-5)


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


@dataclass(frozen=True)
class Network:
    """Rows out of nothing but position and draw: some canvases settle soon, others never."""

    seed: int

    def rows(self, start, length, draw):
        fixed = Random(f"{self.seed} {start}")
        settles, calm = fixed.randint(0, 6), fixed.randint(0, 4)
        random = Random(f"{self.seed} {start} {draw}")
        best = [(fixed if draw >= settles else random).choice((1, 2, 2, 3, 3, 4, EOS)) for _ in range(length)]
        uncertain = 0.05 if draw >= calm else 2.0
        return SpanSamples(
            tokens=tuple(random.randrange(VOCABULARY) for _ in range(length)),
            probabilities=(0.5,) * length,
            entropies=tuple(random.randint(0, 64) / 64 * uncertain for _ in range(length)),
            best_ids=tuple(best),
            best_probabilities=tuple(random.random() for _ in range(length)),
            noise=tuple(random.randrange(VOCABULARY) for _ in range(length)),
        )

    def answer(self, span):
        """The rows of a span, the draws of whose sampled positions must be one."""
        (draw,) = set(span.wanted.draws)
        return self.rows(span.rows.start, len(span.wanted.sampled), draw)


def decode(value, request, answer):
    """`request` decoded alone, and all spans that were planned."""
    config = Config(SPEC, 4, 64, MAX_MODEL_LEN, 64, 1, enable_prefix_caching=False)
    state, spans, driver = add(init(config, value), request), [], ScriptedDriver(answer)
    while not state.done:
        plan = schedule(state)
        spans += plan.spans
        state = commit(state, driver.run(plan))
    return state.finished[request.id], spans


REQUESTS = st.builds(
    Request,
    id=st.just(0),
    prompt=st.lists(st.integers(0, EOS), min_size=1, max_size=9).map(tuple),
    params=st.builds(SamplingParams, max_tokens=st.integers(1, 30), seed=st.integers(0, 5)),
)


@given(value=GEMMAS, request=REQUESTS, network=st.builds(Network, st.integers(0, 999)))
def test_positions_are_encoded_once_in_order_and_canvases_are_denoised_whole(value, request, network):
    _, spans = decode(value, request, network.answer)
    encoded = 0
    for span in spans:
        assert all(0 <= token < VOCABULARY for token in span.rows.tokens)
        if span.rows.mode == "encode":
            assert (span.rows.start, span.rows.final_rows, span.wanted.sampled) == (encoded, len(span.rows.tokens), ())
            assert (span.rows.grid.origin, span.rows.grid.size, span.rows.carry) == (0, 1, "none")
            encoded = span.rows.stop
        else:
            assert span.rows.start == encoded and (encoded - len(request.prompt)) % value.canvas_length == 0
            assert len(span.rows.tokens) == value.canvas_length and span.rows.end == span.rows.stop
            assert span.wanted.sampled == tuple(range(span.rows.start, span.rows.stop))
            assert not span.rows.final_rows and not span.rows.query_only and span.rows.soft is None
            assert (span.rows.grid.origin, span.rows.grid.size) == (span.rows.start, value.canvas_length)
    # The last canvas is not encoded.
    assert encoded == max(span.rows.start for span in spans if span.wanted.sampled)


@pytest.mark.parametrize("given_", [{"temperature": 0.5}, {"top_k": 3}, {"top_p": 0.9}, {"min_p": 0.1}], ids=str)
def test_sampling_settings_of_a_request_are_refused(given_):
    request = Request(0, (1,), SamplingParams(max_tokens=4, **given_))
    config = Config(SPEC, 4, 64, MAX_MODEL_LEN, 64, 1)
    reason = refusal(config, DiffusionGemma(canvas_length=4), request)
    assert ([reason.field], reason.code) == ([*given_], "unsupported")


@pytest.mark.parametrize("spec", [Spec(0, (1,), 9), Spec(None, (1,), 9, head_shift=1)])
def test_models_of_another_kind_are_refused(spec):
    with refused("decoding_strategy", "unsupported"):
        init(Config(spec, 4, 64, MAX_MODEL_LEN, 64, 1), DiffusionGemma(canvas_length=4))


def test_spans_hold_the_temperature_and_nothing_that_may_be_long():
    """Parameters of forwards are kept for later ones, so that texts of requests in them would stay in memory."""
    strategy = DiffusionGemma(canvas_length=4, max_denoising_steps=3)
    long = SamplingParams(8, stop_token_ids=(3, 4), pinned={2: 5}, seed=7, max_nfe=9)
    (sequence,) = add(init(Config(SPEC, 4, 20, MAX_MODEL_LEN), strategy), Request(0, (1, 2), long)).waiting
    assert strategy.schedule(sequence, SPEC).who.params == SamplingParams(temperature=strategy.temperature(3))


AB_OR_BA = token_automaton("ab|ba", regex("ab|ba"), (b"a", b"b", *[b""] * 9), (EOS,))
A, B, VOID, NOISE = 0, 1, 9, 5


def under_a_constraint(steps, forwards):
    """The canvas of an answer `ab` or `ba` and a position past it after each forward: its two tokens, and their entropies."""
    script, found = iter(forwards), []

    def say(span):
        tokens, entropies = next(script)
        answer, (*inside, past) = (*tokens, VOID), [mask.ids() for mask in span.wanted.masks]
        assert len(past) == VOCABULARY and all(token in ids for token, ids in zip(tokens, inside, strict=True))
        chances = tuple([1.0 - entropy for entropy in (*entropies, 0.0)])
        return SpanSamples(answer, chances, (*entropies, 0.0), (), answer, chances, (NOISE,) * 3)

    value = DiffusionGemma(canvas_length=3, max_denoising_steps=steps, stability_threshold=0)
    state = add(init(Config(SPEC), value), Request(0, (4, 4), SamplingParams(max_tokens=2), automaton=AB_OR_BA))
    while not state.done:
        before, state = state.find(0), commit(state, ScriptedDriver(say).run(schedule(state)))
        sequence = state.find(0)
        if sequence.steps > before.steps:  # not the pass that stores the prompt
            assert sequence.finish or value.measure(sequence) < value.measure(before)
            found.append(sequence.progress.window[0].tokens)
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
