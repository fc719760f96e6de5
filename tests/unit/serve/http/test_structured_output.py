"""OpenAI's client gets structured answers and calls of functions, whole and streamed."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from jsonschema import validate
from openai import BadRequestError, OpenAI
from openai.types.chat import ChatCompletion
from pydantic import BaseModel

from ....helpers.servers import nothing_goes_wrong_unseen  # noqa: F401  # pyright: ignore[reportUnusedImport]
from ....helpers.serving import served, tiny_llm

STORY = "Max has 53 shells. Later Max buys 39 more. How many shells does Max have?"
MESSAGES: Any = [{"role": "user", "content": STORY}]
PARAMETERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "boolean"}}, "required": ["a", "b"]}
TOOLS: Any = [
    {"type": "function", "function": {"name": "add", "parameters": PARAMETERS}},
    {"type": "function", "function": {"name": "stop"}},
]


class Total(BaseModel):
    shells: int
    sure: bool


@pytest.fixture(scope="module")
def client() -> Any:
    engine = tiny_llm().engine
    with served(engine) as server:
        yield OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


def test_an_answer_is_parsed_whole_and_streamed(client: OpenAI) -> None:
    facts: Any = {"model": "tiny-bd", "messages": MESSAGES, "max_tokens": 60, "response_format": Total}
    whole = client.chat.completions.parse(**facts).choices[0]
    assert isinstance(whole.message.parsed, Total) and whole.finish_reason == "stop"
    with client.chat.completions.stream(**facts) as stream:
        assert stream.get_final_completion().choices[0].message.parsed == whole.message.parsed


@pytest.mark.parametrize(
    "asked", [{"regex": "[0-9]{4}"}, {"choice": ["yes", "no"]}, {"json": PARAMETERS}, {"json_object": True}]
)
def test_vllms_field_constrains_a_completion(client: OpenAI, asked: dict[str, Any]) -> None:
    extra = {"structured_outputs": asked}
    text = client.completions.create(model="tiny-bd", prompt=STORY, max_tokens=60, extra_body=extra).choices[0].text
    if "regex" in asked:
        assert text.isdigit() and len(text) == 4
    elif "choice" in asked:
        assert text in asked["choice"]
    else:
        validate(json.loads(text), asked.get("json", {"type": "object"}))


def streamed_call(client: OpenAI, choice: Any) -> tuple[str, str, str | None]:
    """Name, arguments and finish reason of a streamed call."""
    name, arguments, finish = "", "", None
    for chunk in client.chat.completions.create(
        model="tiny-bd", messages=MESSAGES, max_tokens=90, tools=TOOLS, tool_choice=choice, stream=True
    ):
        for part in chunk.choices:
            assert not part.delta.content
            finish = part.finish_reason or finish
            for call in part.delta.tool_calls or ():
                assert call.index == 0 and call.function is not None
                assert not call.id or not name, "a call begins twice"
                name, arguments = name or call.function.name or "", arguments + (call.function.arguments or "")
    return name, arguments, finish


@pytest.mark.parametrize(
    ("choice", "finish"), [("required", "tool_calls"), ({"type": "function", "function": {"name": "add"}}, "stop")]
)
def test_a_function_is_called_and_its_result_continues_the_conversation(client: OpenAI, choice: Any, finish: str) -> None:
    answer = client.chat.completions.create(
        model="tiny-bd", messages=MESSAGES, max_tokens=90, tools=TOOLS, tool_choice=choice
    ).choices[0]
    (call,) = answer.message.tool_calls or ()
    assert call.type == "function" and answer.message.content is None and answer.finish_reason == finish
    if call.function.name == "add":
        validate(json.loads(call.function.arguments), PARAMETERS)
    assert streamed_call(client, choice) == (call.function.name, call.function.arguments, finish)
    turns = [*MESSAGES, answer.message, {"role": "tool", "tool_call_id": call.id, "content": "92"}]
    last = client.chat.completions.create(model="tiny-bd", messages=turns, max_tokens=8, tools=TOOLS, tool_choice="none")
    assert last.choices[0].message.tool_calls is None


@pytest.mark.parametrize(
    ("choice", "finish"), [("required", "tool_calls"), ({"type": "function", "function": {"name": "add"}}, "stop")]
)
def test_a_fork_of_a_call_is_a_call(client: OpenAI, choice: Any, finish: str) -> None:
    steps = {"dlstep": {"stream": "steps"}}
    answer = client.chat.completions.create(
        model="tiny-bd", messages=MESSAGES, max_tokens=90, tools=TOOLS, tool_choice=choice, extra_body=steps
    )
    (call,) = answer.choices[0].message.tool_calls or ()
    assert call.type == "function"
    fork = client.post(f"/requests/{answer.id}/fork", body={"seq": 1}, cast_to=ChatCompletion)
    (again,) = fork.choices[0].message.tool_calls or ()
    assert again.type == "function" and again.function == call.function and again.id != call.id
    assert fork.choices[0].message.content is None and fork.choices[0].finish_reason == finish


def test_many_clients_get_valid_answers_at_once(client: OpenAI) -> None:
    def ask(number: int) -> None:
        facts: Any = {"response_format": Total} if number % 2 else {}
        answer = client.chat.completions.parse(
            model="tiny-bd", messages=MESSAGES, max_tokens=60, temperature=1.0, seed=number, **facts
        ).choices[0]
        assert answer.message.parsed is not None if number % 2 else answer.message.content is not None

    with ThreadPoolExecutor(32) as threads:
        list(threads.map(ask, range(32)))


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        ({"structured_outputs": {"regex": "("}}, "structured_outputs", "cannot be compiled"),
        ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs", "give exactly one of"),
        ({"structured_outputs": {"regex": "a{99}"}}, "max_tokens", "fits 60 tokens: raise max_tokens"),
        ({"structured_outputs": {"regex": "a"}, "ignore_eos": True}, None, "ignore_eos=True may cut an answer"),
        ({"response_format": {"type": "json_object"}, "structured_outputs": {"regex": "a"}}, "structured_outputs", "differ"),
        ({"tools": TOOLS}, "tool_choice", '"auto" needs a chat template that defines calls'),
        ({"tools": TOOLS, "tool_choice": "required", "response_format": {"type": "json_object"}}, "tools", "leave out"),
        ({"tool_choice": "required"}, "tool_choice", "needs tools"),
    ],
)
def test_what_cannot_be_met_is_refused_by_name(client: OpenAI, body: dict[str, Any], param: str | None, message: str) -> None:
    with pytest.raises(BadRequestError, match=message) as caught:
        client.chat.completions.create(model="tiny-bd", messages=MESSAGES, max_tokens=60, extra_body=body)
    assert caught.value.param == param
