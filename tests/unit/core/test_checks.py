"""Checks: a value of a wrong type is refused where it comes in, by one sentence, and nothing else is harmed."""

from dataclasses import fields, replace
from functools import cache

import pytest
from hypothesis import example, given, strategies as st

from dlstep import LLM, EngineConfig, SamplingParams, Spec, strategies
from dlstep.core import Config, Refused, Request, SpanSamples, Strategy, add, commit, init, schedule
from dlstep.core.trace import from_json, to_json
from dlstep.engine.resolve import resolve
from dlstep.testing.harness import shadow
from dlstep.testing.scripted import ScriptedDriver

from ...helpers.descriptions import Facts
from ...helpers.odd_values import ODD, check_sentence, check_value, made, plain_only, recipes
from ...helpers.recorded import SPECS
from ...helpers.shadow_llm import PAGE_SIZE, make_llm, spec

GOOD, SHORT = "How many", SamplingParams(max_tokens=6)
SMALL = {"block_size": 4, "buffer_size": 2, "canvas_length": 4, "max_denoising_steps": 4}


@cache
def good_alone():
    """The answer of the good request by itself."""
    return make_llm().generate(GOOD, SHORT)[0]


def valid(cls):
    """Arguments that make a value of `cls`."""
    if cls is Config:
        return {"spec": spec(), "page_size": 8, "num_pages": 64, "max_model_len": 128, "max_num_batched_tokens": 256}
    if cls is Spec:
        return {"mask_id": 7, "eos_ids": (6,), "vocab_size": 8}
    if cls is Request:
        return {"id": 0, "prompt": (5, 6)}
    return {each.name: SMALL[each.name] for each in fields(cls) if each.name in SMALL} if issubclass(cls, Strategy) else {}


def finished(state, driver):
    """The state once all requests have ended."""
    for _ in range(500):
        if state.done:
            return state
        state = commit(state, driver.run(schedule(state)))
    raise AssertionError("not finished")


def use_params(value):
    """Another request beside one with these parameters is answered as alone."""
    llm = make_llm()
    try:
        *odd, good = llm.generate(["other", GOOD], [value, SHORT])
    except ValueError as error:  # a constraint that cannot be compiled
        check_sentence(error, "regex=", "json_schema", "choice=", "grammar")
        assert value.constraint_source is not None and llm.state.done
        return
    assert good == good_alone() and llm.state.done
    assert {each.finish_reason for each in odd} <= {"length", "nfe_limit", "repetition", "stop", "rejected"}


def use_request(value):
    """The request runs or is rejected, and the one beside it is answered as alone."""
    config = Config(spec(), PAGE_SIZE, 64, 128, 256)
    first, good = init(config, strategies.load("multi_bd")()), Request(77, (5, 6), SHORT)
    if value.id == good.id:
        return
    state = finished(add(add(first, value), good), shadow(config, first.strategy))
    assert state.finished[good.id].answer == finished(add(first, good), shadow(config, first.strategy)).finished[77].answer
    assert state.finished[value.id].finish in ("length", "stop", "rejected")
    check_value(state)


def use_config(value):
    """Requests that such an engine admits are answered."""
    try:
        state = init(value, strategies.load("multi_bd")(block_size=4, buffer_size=1))
    except ValueError as error:
        assert isinstance(error, Refused)
        check_sentence(error, error.refusal.field)
        return
    state = add(add(state, Request(0, (1, 2), SHORT)), Request(1, (0, 3), SamplingParams(max_tokens=3, stop=("x",))))
    token = next(token for token in range(value.spec.vocab_size + 1) if token != value.spec.mask_id)

    def sure(span):
        return SpanSamples((token,) * len(span.wanted.sampled), (1.0,) * len(span.wanted.sampled))

    check_value(finished(state, ScriptedDriver(sure)))


def use_spec(value):
    use_config(Config(value, page_size=8, num_pages=64, max_model_len=128, max_num_batched_tokens=256))


def use_strategy(value):
    """Every model that the strategy can decode is decoded."""
    for model in SPECS:
        config = Config(model, 8, 16, 64, 128)
        try:
            state = init(config, value)
        except ValueError as error:
            assert isinstance(error, Refused)
            check_sentence(error, error.refusal.field)
            continue
        for number in range(2):
            state = add(state, Request(number, (1, 2, number), SamplingParams(max_tokens=9, max_nfe=20)))
        check_value(finished(state, shadow(config, value)))


def use_options(value):
    """The options make an engine or are told by name."""
    alone = {"tensor_parallel_size": 1, "rank_timeout": None, "lora_path": None, "use_lora": None, "pre_merge_lora": None}
    try:
        resolved = resolve(replace(value, **alone), Facts())
        init(resolved.core_config(spec()), resolved.strategy)
    except ValueError as error:
        words = ("positions", "does not go with", "has no option", "unknown")
        check_sentence(error, *(each.name for each in fields(EngineConfig)), *words)


USES = {
    SamplingParams: use_params,
    Request: use_request,
    Spec: use_spec,
    Config: use_config,
    EngineConfig: use_options,
}
USES |= {strategies.load(name): use_strategy for name in strategies.available()}
PLACES = [(cls, each.name) for cls in USES for each in fields(cls) if each.init]


def refused(cls, name, given):
    """None if the value is refused as it should be, else the instance that took it."""
    try:
        value = cls(**valid(cls) | {name: given})
    except ValueError as error:
        check_sentence(error, f"{name}: ", f"{name}.", f"{cls.__name__}.{name}", f"{name}=", "prompt: it is empty")
        return None
    if cls is not EngineConfig:
        check_value(value)
        assert repr(from_json(to_json(value))) == repr(value)
    else:
        assert hash(value) == hash(replace(value))
        value = replace(value, processors=())  # they stay as given, for other processes
    assert not [part for part in plain_only(value) if not isinstance(part, Strategy)], "a foreign object was kept"
    return value


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:max_tokens. .* exceeds the .* tokens that max_model_len leaves")
@pytest.mark.parametrize("cls", USES, ids=lambda cls: cls.__name__)
def test_every_field_takes_or_refuses_every_odd_value(cls):
    used, wrong = set(), []
    for name in [each.name for each in fields(cls) if each.init]:
        for odd, make in ODD.items():
            try:
                value = refused(cls, name, make())
                if value is not None and value not in used:
                    used.add(value)
                    USES[cls](value)
            except Exception as error:  # noqa: BLE001
                wrong.append(f"{cls.__name__}.{name} given {odd}: {type(error).__name__}: {error}"[:300])
    assert not wrong, "\n".join(wrong)


@pytest.mark.filterwarnings("ignore:max_tokens. .* exceeds the .* tokens that max_model_len leaves")
@given(place=st.sampled_from(PLACES), recipe=recipes)
@example((SamplingParams, "stop"), ("plain", ("\ud800",)))
def test_a_field_takes_a_value_or_says_why_not(place, recipe):
    cls, name = place
    value = refused(cls, name, made(recipe))
    if value is not None:
        USES[cls](value)


def listed(stream):
    return list(stream)


def chat_word(llm, given):
    return llm.chat([{"role": "user", "content": given}], SHORT)


def submitted(llm, *given):
    session = llm.session()
    session.submit(*given)
    session.run()
    check_value(session.trace)


def aborted(llm, *given):
    """A session that aborts goes on, and can be written."""
    session = llm.session()
    request_id = session.submit(GOOD, SHORT)
    session.abort(*given)
    session.run()
    assert session.output(request_id).finish_reason in ("length", "abort")
    check_value(session.trace)


TEMPLATE = "{% for message in messages %}{{ message['role'] + ': ' + message.content }}{% endfor %}"
CALLS = {
    "generate": (lambda llm, given: llm.generate(given, SHORT), ("prompt",)),
    "generate with": (lambda llm, given: llm.generate(GOOD, given), ("sampling_params",)),
    "generate many with": (lambda llm, given: llm.generate([GOOD, GOOD], [SHORT, given]), ("sampling_params",)),
    "stream": (lambda llm, given: listed(llm.stream(given, SHORT)), ("prompt",)),
    "stream with": (lambda llm, given: listed(llm.stream(GOOD, given)), ("sampling_params",)),
    "stream_drafts": (lambda llm, given: listed(llm.stream_drafts(given, SHORT)), ("prompt",)),
    "stream_drafts with": (lambda llm, given: listed(llm.stream_drafts(GOOD, given)), ("sampling_params",)),
    "chat": (lambda llm, given: llm.chat(given, SHORT), ("message", "conversation")),
    "chat a message": (lambda llm, given: llm.chat([given], SHORT), ("message", "conversation")),
    "chat a word": (chat_word, ("message", "conversation")),
    "submit": (lambda llm, given: submitted(llm, given, SHORT), ("prompt",)),
    "submit with": (lambda llm, given: submitted(llm, GOOD, given), ("sampling_params",)),
    "abort": (aborted, ("request_id", "id: ")),
    "abort because": (lambda llm, given: aborted(llm, 0, given), ("reason",)),
}


QUICK = ("generate", "generate with", "chat a message", "submit", "abort")


class Busy:
    """An LLM with a stream that is open while it is called."""

    def __init__(self):
        self.llm = LLM.of(replace(make_llm().engine, chat_template=TEMPLATE))
        self.stream = self.llm.stream(GOOD, SHORT)
        self.first = next(self.stream)

    def check_call(self, name, given):
        """A call with an odd argument is refused and changes nothing, or else good requests are answered as always."""
        call, names = CALLS[name]
        before = self.llm.state
        try:
            call(self.llm, given)
        except ValueError as error:
            check_sentence(error, *names)
        if self.llm.state is not before:
            assert self.llm.generate(GOOD, SHORT)[0] == good_alone()

    def close(self):
        """The stream that was open all the time says what it says alone."""
        assert self.first + "".join(self.stream) == good_alone().text
        assert self.llm.state.done


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.full) for name in CALLS])
def test_every_argument_takes_or_refuses_every_odd_value(name):
    busy, wrong = Busy(), []
    for odd, make in ODD.items():
        try:
            busy.check_call(name, make())
        except Exception as error:  # noqa: BLE001
            wrong.append(f"{name} given {odd}: {type(error).__name__}: {error}"[:300])
    assert not wrong, "\n".join(wrong)
    busy.close()
