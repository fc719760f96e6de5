"""Bodies of every kind: neutral fields pass, what cannot be done is a 400 that names its field, and nothing is a 5xx."""

import json
import re
from dataclasses import replace

import pytest
from hypothesis import example, given, strategies as st
from jsonschema import Draft202012Validator
from pydantic import TypeAdapter, ValidationError

from dlstep.core import Refused
from dlstep.processors.logit_bias import LogitBias
from dlstep.processors.min_tokens import MinTokens
from dlstep.processors.repetition_penalty import RepetitionPenalty
from dlstep.serve.http.kinds import KINDS
from dlstep.serve.http.replies import Reply
from dlstep.serve.http.schema import (
    PART,
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    ForkRequest,
    MessagesRequest,
    ReadRequest,
    ResponsesRequest,
    Sampling,
    TokenizeChat,
    TokenizeText,
    fields_of,
)
from dlstep.serve.http.translate import MOST_BIASES, head_for, params_of, translated
from dlstep.text.read_templates import encode_template

from ....helpers.serving import CHAT, COMPLETIONS
from .conftest import GOOD, GOOD_CHAT, cases, error_of, refused

NEUTRAL = {
    "frequency_penalty": 0, "presence_penalty": 0.0, "repetition_penalty": 1.0, "length_penalty": 1, "min_tokens": 0,
    "logit_bias": {}, "use_beam_search": False, "skip_special_tokens": True, "bad_words": [], "user": "somebody", "n": 1,
    "service_tier": "auto", "metadata": {"run": "7"}, "prompt_cache_key": "a", "safety_identifier": "b", "store": False,
    "temperature": 0, "top_p": 1, "top_k": -1, "min_p": 0, "seed": None, "stop": None, "ignore_eos": False, "stream": False,
    "return_token_ids": False, "return_tokens_as_token_ids": False, "prompt_cache_retention": "in_memory",
    "stop_token_ids": [], "stream_options": {"include_usage": False, "continuous_usage_stats": False}, "dlstep": {},
}  # fmt: skip
OF_COMPLETIONS = {"best_of": 1, "suffix": "", "echo": False, "logprobs": None, "add_special_tokens": True}
OF_CHAT = {
    "tools": [], "tool_choice": "none", "parallel_tool_calls": True, "response_format": {"type": "text"}, "logprobs": False,
    "top_logprobs": 0, "max_completion_tokens": 4, "add_generation_prompt": True, "add_special_tokens": False,
    "continue_final_message": False, "modalities": ["text"], "verbosity": "medium",
}  # fmt: skip


TOO_MANY = dict.fromkeys(map(str, range(MOST_BIASES + 1)), 1)


def test_neutral_values_pass_alone_and_together(shadow):
    for path, good, more in ((COMPLETIONS, GOOD, OF_COMPLETIONS), (CHAT, GOOD_CHAT, OF_CHAT)):
        bodies = [{name: value} for name, value in (NEUTRAL | more).items()]
        for body in (*bodies, NEUTRAL | more, dict.fromkeys(NEUTRAL | more, None) | {"dlstep": {}}):
            shadow.post(path, **good | body)


@pytest.mark.parametrize(
    "field, value",
    cases({
        "frequency_penalty": [0.5], "presence_penalty": [-1], "repetition_penalty": [0], "best_of": [2], "suffix": ["end"],
        "logit_bias": [{"5": 1e9}, {"a": 1}, {" 5": 1}, {"100000": 1}, TOO_MANY], "min_tokens": [-1, 5],
        "use_beam_search": [True], "skip_special_tokens": [False], "logprobs": [21, -1],
        "temperature": ["0.5", False, -0.1, 1e-31], "top_p": [0, 1.5], "top_k": [-2, 1e400], "min_p": [2], "n": [0, 129, True],
        "max_tokens": [0, 1 << 70, 128], "seed": [1 << 64, 0.5], "stop": ["", [""], 5, ["a"] * 65],
        "stop_token_ids": [[-1], [1 << 40], [100_000]],
        "prompt": ["", [], [[]], [1, "a"], None, [100_000], [1], "x " * 5000, "x" * 128], "stream": [1], "echo": ["yes"],
        "stream_options": [{"x": 1}, {"include_usage": True}, {"continuous_usage_stats": True}, {"include_usage": None}],
        "unknown": [1], "user": [5], "cache_salt": [""], "truncate_prompt_tokens": [0],
    }),
)  # fmt: skip
def test_what_cannot_be_done_is_refused_by_the_name_of_its_field(http, field, value):
    error = refused(http, GOOD | {field: value})
    assert error["param"].split(".")[0] == field and error["type"] == "invalid_request_error", error


@pytest.mark.parametrize(
    "param, given",
    cases({
        "accept_threshold": [1.5, "high"], "no_such_option": [1], "block_size": [16], "max_nfe": [0], "stream": ["all"],
        "pinned": [{"500": 5}, {"0": 1}, {"a": 5}, {"1": 5, "01": 6}], "canvas": [[5]], "nonsense": [None],
        "steps_per_block": [None], "rule": ["./evil.py", "os.path", {"a": 1}], "inner": ["evil.module"],
        "max_repetition_run": [1],
        "processors": [
            {"./evil.py": {}}, {"nope": None}, {"min_tokens": {"count": -1}}, {"logit_bias": {"bias": {"99999": 1}}},
            {"logit_bias": {"bias": TOO_MANY}},
        ],
    }),
)  # fmt: skip
def test_an_option_that_cannot_be_is_refused_by_its_name(http, param, given):
    error = refused(http, GOOD | {"dlstep": {param: given}})
    assert error["param"].startswith(f"dlstep.{param}"), error
    assert not re.search("dotted|path of", error["message"]), "clients cannot give files"


@pytest.mark.parametrize(
    "field, value",
    cases({
        "messages": [
            [], "hello", [{"role": "user"}], [{"role": "user", "content": ""}],
            [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}],
        ],
        "tools": [[{"type": "function"}]], "top_logprobs": [1, 21], "response_format": [{"type": "json_schema"}],
        "tool_choice": ["required"], "max_completion_tokens": [5], "continue_final_message": [True], "verbosity": ["low"],
        "modalities": [["text", "audio"]], "prompt_cache_retention": ["24h"],
    }),
)  # fmt: skip
def test_what_a_chat_cannot_do_is_refused(http, field, value):
    param = refused(http, GOOD_CHAT | {field: value}, CHAT)["param"]
    assert param.split(".")[0] in (field, "max_tokens"), param


@pytest.mark.parametrize(
    "message",
    [
        {"content": "x", "extra_field": "0"},
        {"content": "x", "refusal": None, "annotations": [], "audio": None, "function_call": None, "parsed": {"a": [1]}},
        {"content": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}]},
        {"content": None, "role": "assistant"},
        {"role": "assistant"},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "x"}]},
    ],
)
def test_fields_that_clients_add_to_a_message_are_accepted(shadow, message):
    turns = [{"role": "user", "content": "x"}, {"role": "user", **message}]
    text = "xx" if message.get("content") else "x"
    assert shadow.post("/tokenize", messages=turns)["count"] == shadow.post("/tokenize", prompt=text)["count"]
    shadow.post(CHAT, **GOOD_CHAT | {"messages": turns})


MANY = {str(number): [] for number in range(20_000)}


@pytest.mark.parametrize(
    "more",
    [MANY, {"metadata": MANY}, {"logit_bias": MANY}, {"dlstep": {"pinned": MANY}}, {"dlstep": {"processors": MANY}},
     {"stop_token_ids": [*MANY]}, {"prompt": [MANY] * 20_000}],
    ids=lambda more: ", ".join(more)[:20],
)  # fmt: skip
def test_of_many_faults_few_are_collected(more):
    with pytest.raises(ValidationError) as raised:
        CompletionRequest(**GOOD | more)
    assert raised.value.error_count() <= 2 * PART


GOODS = {
    CompletionRequest: GOOD,
    ChatRequest: GOOD_CHAT,
    ResponsesRequest: {"input": "x"},
    ReadRequest: {"prompt": "x", "template": ["x", ["a", "b"]]},
    ForkRequest: {"seq": 0},
    TokenizeText: {"prompt": "x"},
    TokenizeChat: {"messages": GOOD_CHAT["messages"]},
    DetokenizeRequest: {"tokens": []},
    MessagesRequest: {"messages": GOOD_CHAT["messages"], "max_tokens": 4},
}
# How many of what a limit counts, or which number it compares.
MAKERS = {
    "maxLength": lambda _, limit: "a" * limit,
    "maxItems": lambda node, limit: [sample(node["items"])] * limit,
    "maxProperties": lambda _, limit: {str(key): 1 for key in range(limit)},
    "maximum": lambda _, limit: limit,
    "minimum": lambda _, limit: limit,
}


def sample(node):
    """A value that the schema of a list's items or of an object's values allows."""
    if "$ref" in node:
        return {"Message": GOOD_CHAT["messages"][0], "Tool": {"type": "function", "function": {"name": "f"}}}[node["$ref"][8:]]
    return {"string": "a", "integer": 1, "number": 1, "array": [1], "object": {}}[node["type"]]


def limits(model):
    """The fields of a body, and of its `dlstep`, with a limit: the name, the limit and its schema."""
    schema = model.model_json_schema()
    inner = schema.get("$defs", {}).get("DlstepOptions", {}).get("properties", {})
    for name, field in {**schema["properties"], **{f"dlstep.{name}": field for name, field in inner.items()}}.items():
        for node in field.get("anyOf", [field]):
            yield from ((name, limit, node, node[limit]) for limit in MAKERS if limit in node)


@pytest.mark.parametrize("model", GOODS)
def test_each_limit_in_the_schema_is_applied(model):
    found = [*limits(model)]
    for name, limit, node, value in found:
        for more in (0, -1 if limit == "minimum" else value if isinstance(value, float) else 1):
            part, made = name.removeprefix("dlstep."), MAKERS[limit](node, value + more)
            own = {part: made} if part == name else {"dlstep": {part: made}}
            body = json.dumps(GOODS[model] | own).encode()
            if not more:
                assert fields_of(body, TypeAdapter(model)), (name, limit)
                continue
            with pytest.raises(Refused) as refusal:
                fields_of(body, TypeAdapter(model))
            assert refusal.value.refusal.field.startswith(name), (name, limit)
    assert len(found) >= 15 or not issubclass(model, Sampling)


def test_fields_of_other_servers_are_processors_before_those_of_dlstep(shadow):
    own = {"min_tokens": 3, "repetition_penalty": 1.5, "logit_bias": {"5": 1}, "dlstep": {"processors": {"min_tokens": {}}}}
    params = params_of(shadow.router.facts, CompletionRequest.model_validate(GOOD | own))
    assert params.processors == (RepetitionPenalty(1.5), MinTokens(3), LogitBias({5: 1}), MinTokens())


def test_a_salt_separates_prefixes_and_a_prompt_is_cut_to_its_last_tokens(shadow):
    prompt = [*range(5, 45)]

    def used(**more):
        usage = shadow.post(COMPLETIONS, prompt=prompt, max_tokens=4, **more)["usage"]
        return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]

    assert [used(cache_salt=salt)[1] > 0 for salt in ("a", "a", "b", "b")] == [False, True, False, True]
    assert used(truncate_prompt_tokens=8)[0] == 8 and used(truncate_prompt_tokens=99)[0] == len(prompt)


def test_a_begun_message_is_continued_in_chats_as_in_tokenize(shadow):
    begun = [*GOOD_CHAT["messages"], {"role": "assistant", "content": "y"}]
    ways = {"messages": begun, "add_generation_prompt": False, "continue_final_message": True}
    assert shadow.post("/tokenize", **ways)["count"] == shadow.post(CHAT, **GOOD_CHAT | ways)["usage"]["prompt_tokens"] == 2


CANDIDATES = (True, False, 0, 1, 2, 0.5, "a", "low", [5], ["a"], {}, {"a": "b"}, {"5": 1}, {"type": "json_object"})
# Values without effect, and fields that describe the client or change how a reply is sent.
WITHOUT_EFFECT = (
    NEUTRAL
    | OF_CHAT
    | OF_COMPLETIONS
    | {"spaces_between_special_tokens": True, "truncation": "disabled", "thinking": {"type": "disabled"}}
)
NOTHING = (None, {}, [], False, 0, "in-memory", "default")
DESCRIBING = (
    "model", "user", "safety_identifier", "prompt_cache_key", "metadata", "cache_control", "stream", "stream_options", "store",
    "truncate_prompt_tokens", "parallel_tool_calls",
    "enable_thinking", "reasoning_effort",
)  # fmt: skip


def outcome(shadow, model, body):
    """What a body asks the engine for, and the form of its reply; empty if it is refused."""
    try:
        chat = KINDS.get(model, Reply).chat_of(fields_of(json.dumps(body).encode(), TypeAdapter(model)))
        asked = translated(shadow.router.facts, chat)
        return repr((asked, replace(head_for(chat, "m", ""), name="a", created=0)))
    except Refused:
        return ""


@pytest.mark.parametrize("model", [*[*GOODS][:3], MessagesRequest])
def test_no_field_is_silently_ignored(shadow, model):
    good = GOODS[model]
    base = outcome(shadow, model, good)
    assert base
    schemas = model.model_json_schema()["properties"]
    listed = {field: [value for each in schemas[field].get("anyOf", ()) for value in each.get("enum", ())] for field in schemas}
    listed["tool_choice"] = []  # without tools, "auto" has no effect
    tried = [
        (field, value)
        for field in model.model_fields.keys() - {*good, *DESCRIBING}
        for value in (*CANDIDATES, *listed.get(field, ()))
    ]
    same = [(field, value) for field, value in tried if outcome(shadow, model, good | {field: value}) == base]
    assert [(field, value) for field, value in same if value not in (WITHOUT_EFFECT.get(field), *NOTHING)] == []


PLAIN = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["settled", "drafts", "a"])
)
VALUES = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3), max_leaves=6
)


@st.composite
def mutated(draw):
    """A path, and a good body with some of its fields changed, or added, or taken away, as JSON or nearly."""
    path, good, model = draw(st.sampled_from([(COMPLETIONS, GOOD, CompletionRequest), (CHAT, GOOD_CHAT, ChatRequest)]))
    names = st.sampled_from([*model.model_fields, *Sampling.model_fields]) | st.text(max_size=6)
    changes = draw(st.dictionaries(names, VALUES, min_size=1, max_size=3))
    if draw(st.booleans()):
        changes["dlstep"] = draw(
            st.dictionaries(st.sampled_from(["accept_threshold", "pinned", "canvas", "rule", "max_nfe"]), VALUES)
        )
    body = {name: value for name, value in (good | changes).items() if draw(st.integers(0, 20))}
    text = json.dumps(body)
    if not draw(st.integers(0, 9)):
        cut = draw(st.integers(0, len(text)))
        text = text[:cut] + draw(st.sampled_from(["", "}", "\x00", "\\ud800", "é"])) + text[cut + 1 :]
    return path, text


@given(case=mutated())
def test_no_mutated_body_is_a_fault(http, case):
    """Nor does an error show what is inside the server; the field that it names is in the body, but for its last part."""
    path, text = case
    response = http.post(path, content=text.encode("utf-8", "replace"), headers={"Content-Type": "application/json"})
    assert response.status_code in (200, 400, 404), (text, response.text)
    if response.status_code != 200:
        param = error_of(response)["param"]
        assert ".py" not in response.text.replace(text, "")
        inside = json.loads(text) if param is not None else None
        for part in param.split(".") if param is not None else ():
            assert isinstance(inside, dict | list), (param, text)
            inside = inside[int(part)] if isinstance(inside, list) else inside.get(part)


SHORT = st.text("ab", max_size=2)


@given(st.lists(SHORT | st.lists(SHORT, max_size=4), max_size=4))
@example([["a"]])
@example(["a", [str(number) for number in range(257)]])
def test_the_schema_of_templates_says_what_is_checked(template):
    """Clients that keep to the schema are refused only for what depends on the model's tokens."""
    schema = ReadRequest.model_json_schema()["properties"]["template"]
    with pytest.raises(Refused) as refusal:
        encode_template(None, template)
    assert Draft202012Validator(schema).is_valid(template) == (refusal.value.refusal.code == "unsupported")
