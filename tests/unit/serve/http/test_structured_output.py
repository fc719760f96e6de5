"""OpenAI's client gets structured answers and calls of functions, whole and streamed."""

import json
import re

import pytest
from jsonschema import validate
from openai import BadRequestError, InternalServerError
from openai.types.chat import ChatCompletion
from pydantic import BaseModel

from ....helpers.compiler import suspend_compiler
from ....helpers.servers import nothing_goes_wrong_unseen  # noqa: F401
from ....helpers.serving import served, tiny_llm

STORY = "Max has 53 shells. Later Max buys 39 more. How many shells does Max have?"
MESSAGES = [{"role": "user", "content": STORY}]
PARAMETERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "boolean"}}, "required": ["a", "b"]}
TOOLS = [
    {"type": "function", "function": {"name": "add", "parameters": PARAMETERS, "strict": True}},
    {"type": "function", "function": {"name": "stop"}},
]


FACTS = {"model": "tiny-bd", "messages": MESSAGES, "max_tokens": 90}
ADD = {"type": "function", "function": {"name": "add"}}


class Total(BaseModel):
    shells: int
    sure: bool


TOTAL = Total.model_json_schema()


@pytest.fixture(scope="module")
def client():
    with served(tiny_llm().engine) as server:
        yield server.client()


def chat(client, **more):
    """The choice of a chat about the story."""
    (choice,) = client.chat.completions.create(**FACTS | more).choices
    return choice


def called(client, **more):
    """The function that a chat calls, which is its only call."""
    (call,) = chat(client, **more).message.tool_calls
    return call.function


def test_an_answer_is_parsed_whole_and_streamed(client):
    facts = FACTS | {"response_format": Total}
    whole = client.chat.completions.parse(**facts).choices[0]
    assert isinstance(whole.message.parsed, Total) and whole.finish_reason == "stop"
    with client.chat.completions.stream(**facts) as stream:
        assert stream.get_final_completion().choices[0].message.parsed == whole.message.parsed


def test_a_schema_of_json_object_binds_the_answer(client):
    form = {"type": "json_object", "schema": TOTAL}
    Total.model_validate_json(chat(client, response_format=form).message.content)


GRAMMAR = 'root ::= sum "=" number\nsum ::= number | sum [-+] number\nnumber ::= [0-9]{1,3}'


def test_a_grammar_and_the_form_of_completions_bind_the_answer(client):
    answer = chat(client, max_tokens=30, extra_body={"structured_outputs": {"grammar": GRAMMAR}})
    assert re.fullmatch(r"\d{1,3}([-+]\d{1,3})*=\d{1,3}", answer.message.content)
    form = {"type": "json_schema", "json_schema": {"name": "total", "schema": TOTAL}}
    facts = {"model": "tiny-bd", "prompt": STORY, "max_tokens": 60}
    answer = client.completions.create(**facts, extra_body={"response_format": form})
    Total.model_validate_json(answer.choices[0].text)
    for field, wrong, message in (
        ("structured_outputs", {"grammar": "root ::= foo"}, "the rule foo, used in the rule root, is not defined"),
        ("response_format", {"type": "json_object", "schema": {"type": "x"}}, r"json_schema\.type is malformed"),
    ):
        with pytest.raises(BadRequestError, match=message) as caught:
            client.completions.create(**facts, extra_body={field: wrong})
        assert caught.value.param == field


def test_a_compilation_that_was_killed_is_tried_again(client):
    asked = {"structured_outputs": {"regex": "[g-i]{4}"}}
    suspend_compiler()
    with pytest.raises(InternalServerError, match="was not compiled: the process that compiles it was killed") as caught:
        chat(client, extra_body=asked)
    assert caught.value.status_code == 503 and caught.value.response.headers["retry-after"] == "1"
    assert chat(client, extra_body=asked).finish_reason == "stop"


@pytest.mark.parametrize("choice, finish", [("required", "tool_calls"), (ADD, "stop")])
def test_a_function_is_called_and_its_result_continues_the_conversation(client, choice, finish):
    """A fork of the call is the same call."""
    steps = {"dlstep": {"stream": "steps"}}
    whole = client.chat.completions.create(**FACTS, tools=TOOLS, tool_choice=choice, extra_body=steps)
    (answer,) = whole.choices
    (call,) = answer.message.tool_calls
    assert call.type == "function" and answer.finish_reason == finish
    assert answer.message.content == (None if choice == "required" else "")
    if call.function.name == "add":
        validate(json.loads(call.function.arguments), PARAMETERS)
    stream = client.chat.completions.create(**FACTS, tools=TOOLS, tool_choice=choice, stream=True)
    chunks = [chunk.choices[0] for chunk in stream]
    parts = [call.function for chunk in chunks for call in chunk.delta.tool_calls or ()]
    streamed = ["".join([getattr(part, name) or "" for part in parts]) for name in ("name", "arguments")]
    assert streamed == [call.function.name, call.function.arguments] and chunks[-1].finish_reason == finish
    turns = [*MESSAGES, answer.message, {"role": "tool", "tool_call_id": call.id, "content": "92"}]
    assert chat(client, messages=turns, max_tokens=8, tools=TOOLS, tool_choice="none").message.tool_calls is None
    (fork,) = client.post(f"/requests/{whole.id}/fork", body={"seq": 1}, cast_to=ChatCompletion).choices
    (again,) = fork.message.tool_calls
    assert again.function == call.function and again.id != call.id
    assert (fork.message.content, fork.finish_reason) == (answer.message.content, finish)


def test_only_allowed_tools_are_called(client):
    def choice(mode, name):
        allowed = [{"type": "function", "function": {"name": name}}]
        return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": allowed}}

    call = called(client, tools=TOOLS, tool_choice=choice("required", "stop"))
    assert (call.name, call.arguments) == ("stop", "{}")
    for mode, name, code in (("auto", "stop", "unsupported"), ("required", "go", "unknown_name")):
        with pytest.raises(BadRequestError) as refused:
            chat(client, tools=TOOLS, tool_choice=choice(mode, name))
        assert (refused.value.param, refused.value.code) == ("tool_choice", code)
