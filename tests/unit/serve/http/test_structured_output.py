"""OpenAI's client gets structured answers and calls of functions, whole and streamed."""

import json
import re

import pytest
from jsonschema import validate
from openai import BadRequestError, InternalServerError, OpenAI
from openai.types.chat import ChatCompletion
from pydantic import BaseModel

from ....helpers.compiler import suspend_compiler
from ....helpers.servers import nothing_goes_wrong_unseen  # noqa: F401
from ....helpers.serving import served, tiny_llm

STORY = "Max has 53 shells. Later Max buys 39 more. How many shells does Max have?"
MESSAGES = [{"role": "user", "content": STORY}]
PARAMETERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "boolean"}}, "required": ["a", "b"]}
TOOLS = [
    {"type": "function", "function": {"name": "add", "parameters": PARAMETERS}},
    {"type": "function", "function": {"name": "stop"}},
]


class Total(BaseModel):
    shells: int
    sure: bool


@pytest.fixture(scope="module")
def client():
    engine = tiny_llm().engine
    with served(engine) as server:
        yield OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


def test_an_answer_is_parsed_whole_and_streamed(client):
    facts = {"model": "tiny-bd", "messages": MESSAGES, "max_tokens": 60, "response_format": Total}
    whole = client.chat.completions.parse(**facts).choices[0]
    assert isinstance(whole.message.parsed, Total) and whole.finish_reason == "stop"
    with client.chat.completions.stream(**facts) as stream:
        assert stream.get_final_completion().choices[0].message.parsed == whole.message.parsed


def test_a_schema_of_json_object_binds_the_answer(client):
    form = {"type": "json_object", "schema": Total.model_json_schema()}
    answer = client.chat.completions.create(model="tiny-bd", messages=MESSAGES, max_tokens=60, response_format=form)
    Total.model_validate_json(answer.choices[0].message.content or "")


GRAMMAR = 'root ::= sum "=" number\nsum ::= number | sum [-+] number\nnumber ::= [0-9]{1,3}'


def test_a_grammar_and_the_form_of_completions_bind_the_answer(client):
    chat = client.chat.completions.create(
        model="tiny-bd", messages=MESSAGES, max_tokens=30, extra_body={"structured_outputs": {"grammar": GRAMMAR}}
    )
    assert re.fullmatch(r"\d{1,3}([-+]\d{1,3})*=\d{1,3}", chat.choices[0].message.content)
    form = {"type": "json_schema", "json_schema": {"name": "total", "schema": Total.model_json_schema()}}
    facts = {"model": "tiny-bd", "prompt": STORY, "max_tokens": 60}
    answer = client.completions.create(**facts, extra_body={"response_format": form})
    Total.model_validate_json(answer.choices[0].text)
    with pytest.raises(BadRequestError, match="the rule foo, used in the rule root, is not defined") as caught:
        client.completions.create(**facts, extra_body={"structured_outputs": {"grammar": "root ::= foo"}})
    assert caught.value.param == "structured_outputs"
    with pytest.raises(BadRequestError, match=r"json_schema\.type is malformed") as caught:
        client.completions.create(**facts, extra_body={"response_format": {"type": "json_object", "schema": {"type": "x"}}})
    assert caught.value.param == "response_format"


def test_a_compilation_that_was_killed_is_tried_again(client):
    facts = {"model": "tiny-bd", "messages": MESSAGES, "max_tokens": 60}
    asked = {"structured_outputs": {"regex": "[g-i]{4}"}}
    suspend_compiler()
    with pytest.raises(InternalServerError, match="was not compiled: the process that compiles it was killed") as caught:
        client.chat.completions.create(**facts, extra_body=asked)
    assert caught.value.status_code == 503 and caught.value.response.headers["retry-after"] == "1"
    assert client.chat.completions.create(**facts, extra_body=asked).choices[0].finish_reason == "stop"


def streamed_call(client, choice):
    """Name, arguments and finish reason of a streamed call."""
    name, arguments, finish = "", "", None
    for chunk in client.chat.completions.create(
        model="tiny-bd", messages=MESSAGES, max_tokens=90, tools=TOOLS, tool_choice=choice, stream=True
    ):
        for part in chunk.choices:
            assert not part.delta.content
            finish = part.finish_reason or finish
            for call in part.delta.tool_calls or ():
                assert call.index == 0
                assert not call.id or not name, "a call begins twice"
                name, arguments = name or call.function.name or "", arguments + (call.function.arguments or "")
    return name, arguments, finish


@pytest.mark.parametrize(
    "choice, finish", [("required", "tool_calls"), ({"type": "function", "function": {"name": "add"}}, "stop")]
)
def test_a_function_is_called_and_its_result_continues_the_conversation(client, choice, finish):
    answer = client.chat.completions.create(
        model="tiny-bd", messages=MESSAGES, max_tokens=90, tools=TOOLS, tool_choice=choice
    ).choices[0]
    (call,) = answer.message.tool_calls or ()
    assert call.type == "function" and answer.finish_reason == finish
    assert answer.message.content == (None if choice == "required" else "")
    if call.function.name == "add":
        validate(json.loads(call.function.arguments), PARAMETERS)
    assert streamed_call(client, choice) == (call.function.name, call.function.arguments, finish)
    turns = [*MESSAGES, answer.message, {"role": "tool", "tool_call_id": call.id, "content": "92"}]
    last = client.chat.completions.create(model="tiny-bd", messages=turns, max_tokens=8, tools=TOOLS, tool_choice="none")
    assert last.choices[0].message.tool_calls is None


@pytest.mark.parametrize(
    "choice, finish", [("required", "tool_calls"), ({"type": "function", "function": {"name": "add"}}, "stop")]
)
def test_a_fork_of_a_call_is_a_call(client, choice, finish):
    steps = {"dlstep": {"stream": "steps"}}
    answer = client.chat.completions.create(
        model="tiny-bd", messages=MESSAGES, max_tokens=90, tools=TOOLS, tool_choice=choice, extra_body=steps
    )
    (call,) = answer.choices[0].message.tool_calls or ()
    assert call.type == "function"
    fork = client.post(f"/requests/{answer.id}/fork", body={"seq": 1}, cast_to=ChatCompletion)
    (again,) = fork.choices[0].message.tool_calls or ()
    assert again.type == "function" and again.function == call.function and again.id != call.id
    assert fork.choices[0].message.content == answer.choices[0].message.content
    assert fork.choices[0].finish_reason == finish


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_only_allowed_tools_are_called(client, mode):
    allowed = [{"type": "function", "function": {"name": "stop"}}]
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": allowed}}
    facts = {"model": "tiny-bd", "messages": MESSAGES, "max_tokens": 60, "tools": TOOLS}
    if mode == "auto":
        with pytest.raises(BadRequestError) as refused:
            client.chat.completions.create(**facts, tool_choice=choice)
        assert (refused.value.param, refused.value.code) == ("tool_choice", "unsupported")
        return
    (call,) = client.chat.completions.create(**facts, tool_choice=choice).choices[0].message.tool_calls or ()
    assert call.type == "function" and (call.function.name, call.function.arguments) == ("stop", "{}")
    allowed[0]["function"] = {"name": "go"}
    with pytest.raises(BadRequestError) as refused:
        client.chat.completions.create(**facts, tool_choice=choice)
    assert (refused.value.param, refused.value.code) == ("tool_choice", "unknown_name")


@pytest.mark.parametrize("parameters", [{}, {**PARAMETERS, "strict": True}])
def test_parameters_may_be_empty_or_strict(client, parameters):
    tools = [{"type": "function", "function": {"name": "add", "parameters": parameters}}]
    for choice in ("required", {"type": "function", "function": {"name": "add"}}):
        facts = {"model": "tiny-bd", "messages": MESSAGES, "max_tokens": 90, "tools": tools, "tool_choice": choice}
        (call,) = client.chat.completions.create(**facts).choices[0].message.tool_calls or ()
        assert call.type == "function"
        validate(json.loads(call.function.arguments), {"type": "object", **parameters})
