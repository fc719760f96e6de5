"""Laws of processors: what they change, what nothing may change, and that their bugs end only their own request."""

import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import given, settings, strategies as st

from dlstep import Config, Request, SamplingParams, Trace, init, strategies
from dlstep.core.lifecycle import sized
from dlstep.core.trace import from_json, to_json
from dlstep.driver import TorchDriver
from dlstep.engine.decode import Decode
from dlstep.models import load_checkpoint
from dlstep.processors.guidance import Guidance
from dlstep.processors.logit_bias import LogitBias
from dlstep.processors.min_tokens import MinTokens
from dlstep.processors.repetition_penalty import RepetitionPenalty
from dlstep.testing.generators import MAX_MODEL_LEN, cases
from dlstep.testing.harness import run_case

from ..helpers.faulty import RAISED
from ..helpers.processors import Broken, Forced, Nothing, Wild
from ..helpers.refusals import refused
from ..reference.models import EOS, WORDS, make_network, write_folder

CANVAS = strategies.make("dual_cache", block_size=4, cache="none")
STRATEGIES = [
    strategies.make("multi_bd", block_size=4, buffer_size=2),
    strategies.make("d2f", block_size=4, buffer_size=3),
    strategies.make("dual_cache", block_size=4),
    strategies.make("multi_bd_edit", block_size=4, buffer_size=2),
    strategies.make("dmax", block_size=4),
    strategies.make("causal_blocks", block_size=4),
    strategies.make("autoregressive"),
    CANVAS,
]
CONSTRAINED = [each for each in STRATEGIES if each.takes_constraints]
WORD = r"(w1[0-9])+"
SHIPPED = (RepetitionPenalty(3.0), LogitBias({7: 4.0, 1000: 9.0}), MinTokens(6), Nothing(), Wild())
named = pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda each: type(each).__name__ + getattr(each, "cache", ""))
FEW = settings(max_examples=5)


@cache
def checkpoint():
    return load_checkpoint(write_folder(make_network(3, 0.3, 1.5), Path(mkdtemp())))


def decoded(strategy, asked, engine_wide=()):
    """The state in which all have ended, and how it came about."""
    config = Config(checkpoint().spec, page_size=4, num_pages=200, max_model_len=48, processors=engine_wide)
    first, events = init(config, strategy), []
    decode = Decode(first, TorchDriver(checkpoint(), config), record=events.append, prunes=False)
    for request in asked:
        decode.add(request)
    while not decode.state.done:
        decode.step()
    return decode.state, Trace(first, tuple(events))


@cache
def alone(strategy, request):
    return decoded(strategy, [request])[0].finished[request.id]


def facts(sequence):
    length, end = len(sequence.request.prompt), sequence.progress.settled
    return sequence.answer, sequence.finish, sequence.steps, sequence.probabilities_of(length, end)


def request(number, *processors, **params):
    prompt = tuple(EOS + 1 + (number * 7 + 5 * place) % (WORDS - EOS - 1) for place in range(1 + number % 6))
    params = {"max_tokens": 4 + number % 9, "temperature": 0.7 * (number % 2), "seed": number} | params
    return Request(number, prompt, SamplingParams(processors=processors, **params))


@named
@FEW
@given(number=st.integers(0, 50), ignore_eos=st.booleans())
def test_processor_that_adds_nothing_changes_nothing(strategy, number, ignore_eos):
    plain = facts(alone(strategy, request(number, ignore_eos=ignore_eos)))
    assert facts(alone(strategy, request(number, Nothing(), LogitBias(), MinTokens(0), ignore_eos=ignore_eos))) == plain
    assert facts(alone(strategy, request(number, Guidance(0.0), ignore_eos=ignore_eos))) == plain


@named
@FEW
@given(number=st.integers(0, 50), token=st.integers(EOS + 1, WORDS - 1))
def test_forced_token_is_everywhere(strategy, number, token):
    sequence = alone(strategy, request(number, Wild(), Forced(token)))
    assert sequence.answer == (token,) * (4 + number % 9)
    repeated = alone(strategy, request(number, Wild(), Forced(-1)))
    assert repeated.answer == repeated.request.prompt[:1] * (4 + number % 9)


@pytest.mark.parametrize("strategy", CONSTRAINED, ids=lambda each: type(each).__name__ + getattr(each, "cache", ""))
@FEW
@given(number=st.integers(0, 50), token=st.integers(EOS, WORDS - 1), turn=st.integers(0, 9))
def test_processors_never_leave_the_language_of_a_constraint(strategy, number, token, turn):
    for processors in ((Wild(turn), Forced(token)), (RepetitionPenalty(5.0), MinTokens(40), Wild(turn))):
        sequence = alone(strategy, request(number, *processors, regex=WORD))
        text = b"".join(checkpoint().spec.pieces[each] for each in sequence.answer).decode()
        assert re.fullmatch(WORD, text.replace(" ", "")), (text, sequence.error)
        assert token not in range(10, 20) or {*sequence.answer} == {token} or processors[-1] != Forced(token)


@pytest.mark.full
@named
@FEW
@given(numbers=st.lists(st.integers(0, 50), min_size=2, max_size=5, unique=True), data=st.data())
def test_batch_is_its_members_and_its_trace_replays(strategy, numbers, data):
    known = [*SHIPPED, *([Guidance(1.5)] if strategy == CANVAS else [])]
    chosen = st.lists(st.sampled_from(known), max_size=2, unique=True)
    asked = [request(number, *data.draw(chosen)) for number in numbers]
    state, trace = decoded(strategy, asked)
    for each in asked:
        assert state.finished[each.id].answer == alone(strategy, each).answer
    assert trace.replay() == state
    assert from_json(to_json(trace)) == trace


@pytest.mark.full
@pytest.mark.parametrize("name", strategies.available())
@given(data=st.data())
def test_processors_see_all_known_tokens_and_guided_passes_feed_all_positions(name, data):
    case = data.draw(cases(strategies.load(name), pinned=True, forks=True))
    processor = data.draw(st.sampled_from([Nothing(), Guidance()]))
    asked = []
    for each in case.requests:
        params = replace(each.params, processors=(processor,))
        # Some answers end where the largest window of a strategy with a cache does.
        room = case.strategy.rows_at_once(sized(each, MAX_MODEL_LEN)) - len(each.prompt)
        asked.append(replace(each, params=params.shortened(room) if 0 < room < params.max_tokens else params))
    for step in run_case(replace(case, requests=tuple(asked))).steps:
        for span, sequence in step.planned_spans():
            if (so_far := span.wanted.so_far) is None:
                continue
            own, length = sequence.request, len(sequence.request.prompt)
            pins = {length + offset: token for offset, token in own.params.pinned}
            known = dict(enumerate(own.prompt)) | pins | sequence.unmasked_tokens
            assert known.items() <= dict(enumerate(so_far.tokens)).items(), "processors do not see all known tokens"
            if processor.guided:
                reach = own.strategy.fed_end(sized(own, MAX_MODEL_LEN))
                if name == "dreamon":
                    reach = sequence.progress.window[-1].end + len(own.params.suffix)
                assert (span.rows.start, span.rows.stop) == (0, reach), "a guided pass does not feed all positions"


@pytest.mark.parametrize("kind", [*RAISED, "nothing", "rows", "integers", "infinite"])
def test_broken_processor_ends_only_its_request(kind):
    healthy = [request(number, Wild()) for number in (2, 3)] + [request(4)]
    for strategy, since in ((STRATEGIES[0], 3), (CANVAS, 0)):
        broken = request(9, Nothing(), Broken(kind, since), max_tokens=12, ignore_eos=True)
        state, trace = decoded(strategy, [*healthy, broken])
        for each in healthy:
            assert facts(state.finished[each.id])[:3] == facts(alone(strategy, each))[:3]  # batching rounds probabilities
        ended = state.finished[9]
        assert ended.finish == "error" and trace.replay() == state
        if kind != "infinite":
            # The hook that checks types in tests of kernels wraps the driver, which calls processors.
            words = r"step \d+, from position \d+ on: (Broken.process|jaxtyped\S+) .*(processors|faulty)\.py:\d+"
            assert re.match(words, ended.error), ended.error
            assert ("raised" in ended.error) == (kind in RAISED) and len(ended.error) < 800


def test_engine_wide_processors_come_first_and_are_part_of_the_trace():
    asked = [request(3, Forced(8), ignore_eos=True), request(4, ignore_eos=True)]
    state, trace = decoded(STRATEGIES[0], asked, (Wild(), Forced(7)))
    assert {*state.finished[4].answer} == {7}
    assert state.finished[3].request.params.processors == (Wild(), Forced(7), Forced(8))
    assert trace.replay() == state and from_json(to_json(trace)).first.config.processors == (Wild(), Forced(7))


def test_trace_of_an_unknown_processor_names_it():
    data = to_json(request(1, Forced(3)))
    written = data["params"]["processors"][0]
    assert written == {"class": f"{Forced.__module__}:Forced", "token": 3}
    with pytest.raises(ValueError, match="a Gone of module away: import that module before reading"):
        from_json(written | {"class": "away:Gone"})


@pytest.mark.parametrize(
    "strategy, processor",
    [
        (STRATEGIES[0], Guidance()),
        (replace(STRATEGIES[0], buffer_size=5), Guidance()),
        (replace(CANVAS, cache="dual"), Guidance()),
        (strategies.make("self_speculation", block_size=4), Nothing()),
    ],
)
def test_strategies_refuse_processors_by_name(strategy, processor):
    ended = decoded(strategy, [request(5, processor, max_tokens=12)])[0].finished[5]
    assert ended.finish == "rejected" and ended.error.startswith(f"processors: {type(processor).__name__}"), ended.error


def test_engine_refuses_a_processor_that_no_request_could_have():
    config = Config(checkpoint().spec, processors=(Nothing(),))
    with refused("processors", "conflict"):
        init(config, strategies.make("self_speculation", block_size=4))
