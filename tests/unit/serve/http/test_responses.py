"""A streamed response, folded, is the whole one; as input again, it is the message that a chat answers."""

import json
from copy import deepcopy
from typing import Literal

import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

from dlstep.core.sequence import FinishInfo
from dlstep.serve.http.anthropic import MessageReply
from dlstep.serve.http.replies import read_choices
from dlstep.serve.http.responses import ResponseReply, chat_of
from dlstep.serve.http.schema import ChatRequest, MessagesRequest, ResponsesRequest
from dlstep.serve.http.translate import head_for, translated
from dlstep.serve.router.pending_requests import PendingRequest

from ....helpers.serving import CHAT, served, shadow_engine, tiny_llm
from .conftest import GOOD_CHAT
from .test_free_calls import TAGGED, TAGS, TEMPLATE, TOOLS, asked

ADD = {"type": "function", "name": "add"}
STORY = "Max has 53 shells. Later Max buys 39 more. How many shells does Max have?"
FLAT = [{"type": "function", **tool["function"]} for tool in TOOLS]
SCHEMA = {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"]}
EVENTS = TypeAdapter(ResponseStreamEvent)
FREE = (
    "<think>\nI add.\n</think>\n\nLet me see." + TAGS,
    TAGS,
    TAGGED[0] + "Both.",
    "It is 92." + TAGGED[1] + "And?" + TAGGED[0],
    "",
    "<think>why",
)


MESSAGES = MessagesRequest.model_validate(GOOD_CHAT)


class Total(BaseModel):
    shells: Literal[53, 92]


@pytest.fixture(scope="module")
def server():
    with served(tiny_llm().engine, template=TEMPLATE) as server:
        yield server


def few(bodies, *quick):
    """The bodies, of which `make test` runs only those with the numbers `quick`."""
    return [pytest.param(each, marks=() if number in quick else pytest.mark.full) for number, each in enumerate(bodies)]


def free_chat(text):
    """The body of a chat whose answer is `text`."""
    body = asked(text)
    return body | body.pop("extra_body")


def free(text):
    """The same of a response."""
    chat = free_chat(text)
    return {"input": "How many?", "tools": FLAT, "max_output_tokens": chat["max_tokens"], "dlstep": chat["dlstep"]}


def plain(**more):
    """A body whose answer the model decides."""
    return {"input": [{"role": "user", "content": STORY}], "max_output_tokens": 40, **more}


BODIES = [
    *map(free, FREE),
    {**free(TAGS), "parallel_tool_calls": False},
    plain(),
    plain(max_output_tokens=3, instructions="Add.", metadata={"a": "b"}, temperature=0.0, store=True, truncation="disabled"),
    plain(tools=FLAT, tool_choice="required"),
    plain(tools=FLAT, tool_choice={"type": "function", "name": "add"}, include=["reasoning.encrypted_content"]),
    plain(text={"format": {"type": "json_schema", "name": "sure", "schema": SCHEMA, "strict": True}}),
    plain(text={"format": {"type": "json_object"}, "verbosity": "medium"}, reasoning={"summary": "auto"}, background=False),
    plain(include=["message.output_text.logprobs"], top_logprobs=2),
    {**free("<think>why</think>It is 92."), "tools": [], "include": ["message.output_text.logprobs"]},
    plain(
        tools=FLAT, tool_choice={"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "add"}]}
    ),
]


def events(server, body):
    """The events of a stream, each of the type that its `event` line says."""
    found = []
    with server.http() as http, http.stream("POST", "/v1/responses", json={**body, "stream": True}) as response:
        for text in "".join(response.iter_text()).removesuffix("\n\n").split("\n\n"):
            kind, data = text.split("\n")
            found.append(json.loads(data.removeprefix("data: ")))
            assert kind == f"event: {found[-1]['type']}"
    return found


def folded(told):
    """The output that a client puts together, from the events of items in their official order."""
    output = []
    after = ""  # the event before, of the same item
    for event in told[2:-1]:
        kind, place = event["type"].removeprefix("response."), event["output_index"]
        item = output[place] if place < len(output) else deepcopy(event["item"])
        assert place >= len(output) - 1 and item["id"] == event.get("item_id", item["id"])
        match kind.rsplit(".", 1):
            case ["output_item", "added"]:
                assert after in ("", "output_item.done") and place == len(output)
                output.append(item)
            case ["content_part", "added"]:
                assert after == "output_item.added"
                item["content"].append(deepcopy(event["part"]))
            case [name, "delta"]:
                assert after in ("output_item.added" if "arguments" in item else "content_part.added", kind)
                if name == "function_call_arguments":
                    item["arguments"] += event["delta"]
                else:
                    item["content"][event["content_index"]]["text"] += event["delta"]
                    item["content"][event["content_index"]]["logprobs"] += event["logprobs"]
            case ["content_part", "done"]:
                assert event["part"] == item["content"][0] and after in ("output_text.done", "reasoning_text.done")
            case ["output_item", "done"]:
                cut = event is told[-2] and told[-1]["type"] == "response.incomplete"
                item["status"] = "incomplete" if cut else "completed"
                assert event["item"] == item and after in ("content_part.done", "function_call_arguments.done")
            case _:
                whole = item if "arguments" in item else item["content"][0]
                assert after.endswith(".delta") and all(
                    event.get(name, whole[name]) == whole[name] for name in ("text", "arguments") if name in whole
                )
        after = kind
    return output


@pytest.mark.parametrize(
    "fields, param, code",
    [
        ({"max_output_tokens": 0}, "max_output_tokens", "out_of_range"),
        ({"max_output_tokens": 10_000}, "max_output_tokens", "context_length_exceeded"),
        ({"input": [{"role": "user", "content": 5}]}, "input.content", "invalid_type"),
        ({"tools": [{"type": "function", "name": "no name"}]}, "tools.0.name", "invalid_value"),
        ({"text": {"verbosity": "low"}}, "text.verbosity", "unsupported"),
        ({"top_logprobs": 2}, "top_logprobs", "conflict"),
        ({"tools": FLAT, "include": ["message.output_text.logprobs"]}, "include", "conflict"),
        ({"background": True}, "background", "unsupported"),
        ({"chat_template_kwargs": {"no": 1}}, "chat_template_kwargs", "unknown_name"),
    ],
)
def test_errors_name_the_fields_of_responses(server, fields, param, code):
    error = server.post("/v1/responses", status=400, **plain(**fields))["error"]
    assert (error["param"], error["code"]) == (param, code), error


@pytest.mark.parametrize("path, body", [("/v1/responses", {"input": "x"}), ("/v1/messages", GOOD_CHAT)])
def test_a_stream_that_fails_ends_with_an_error_of_its_format(path, body):
    engine = shadow_engine(seconds=0.1)
    engine.driver.failures += [RuntimeError("broken")] * 2
    with served(engine, template=TEMPLATE, ping_seconds=0.01) as server, server.http() as http:
        kind, data = http.post(path, json={**body, "stream": True}).text.strip().split("\n\n")[-1].split("\n")
    found = json.loads(data.removeprefix("data: "))
    assert kind == "event: error" and found["type"] == "error"
    assert (found.get("code") or found["error"]["type"]) in ("engine_error", "server_error")


def test_an_answer_that_was_ended_early_says_so(server):
    for reason, status, cut in (("abort", "cancelled", None), ("length", "incomplete", {"reason": "max_output_tokens"})):
        for body, kind in ((ResponsesRequest(input="x"), ResponseReply), (MESSAGES, MessageReply)):
            chat = kind.chat_of(body)
            (submit,) = translated(server.router.facts, chat).submits
            pending = PendingRequest(submit, "", 0.0, lambda: None, tokens=[5, 6])
            pending.end(FinishInfo(reason, 2), 1.0)
            head = head_for(chat, "m", kind.PREFIX)
            reply = kind(head, body, read_choices([pending], head, server.router.facts), [""]).whole()
            if kind is ResponseReply:
                assert (reply["status"], reply["incomplete_details"]) == (status, cut)
                assert reply["output"][0]["status"] == "incomplete"
            else:
                assert reply["stop_reason"] == {"abort": "pause_turn", "length": "max_tokens"}[reason]


def comparable(response):
    """A response without what two requests differ in: their ids, time and cached tokens."""
    text = json.dumps({**response, "created_at": 0}).replace(response["id"].removeprefix("resp_"), "ID")
    found = json.loads(text)
    found["usage"]["input_tokens_details"]["cached_tokens"] = 0
    return found


@pytest.mark.parametrize("body", few(BODIES, 0, 7, 10, 14))
def test_a_stream_is_the_whole_response(server, body):
    whole, told = server.post("/v1/responses", **body), events(server, body)
    assert [event["sequence_number"] for event in told] == [*range(len(told))]
    for event in told:
        EVENTS.validate_python(event)
    Response.model_validate(whole)
    last = told[-1]["response"]
    assert comparable(last) == comparable(whole)
    assert folded(told) == last["output"]
    assert [event["type"] for event in told[:2]] == ["response.created", "response.in_progress"]
    assert told[-1]["type"] == f"response.{whole['status']}"
    for name in ("instructions", "metadata", "temperature", "tools", "tool_choice", "text", "max_output_tokens"):
        assert name not in body or whole[name] == body[name]


@pytest.mark.parametrize("text", FREE)
def test_the_output_is_the_message_of_a_chat(server, text):
    response, chat = server.post("/v1/responses", **free(text)), server.post(CHAT, **free_chat(text))
    message = chat["choices"][0]["message"]
    texts = [item for item in response["output"] if item["type"] == "message"]
    assert "".join([item["content"][0]["text"] for item in texts]) == (message["content"] or "")
    assert response["status"] == {"length": "incomplete"}.get(chat["choices"][0]["finish_reason"], "completed")
    used, usage = response["usage"], chat["usage"]
    assert (used["input_tokens"], used["output_tokens"]) == (usage["prompt_tokens"], usage["completion_tokens"])
    kinds = [item["type"] for item in response["output"]]
    if kinds != ["message"] * bool(texts) + ["function_call"] * (len(kinds) - bool(texts)):
        return  # text after a call begins another message
    history = chat_of(ResponsesRequest.model_validate(plain(input=[*response["output"], {"role": "user", "content": "So?"}])))
    first, last = ChatRequest.model_validate({"messages": [message, {"role": "user", "content": "So?"}]}).messages
    if not response["output"]:
        return  # nothing but reasoning
    assert [(each.role, each.text) for each in history.messages] == [(each.role, each.text) for each in (first, last)]
    both = [[call.function for call in each.tool_calls or ()] for each in (history.messages[0], first)]
    assert both[0] == both[1]


def test_the_official_client_parses_and_continues(server):
    with server.client() as client:
        body = {"model": "tiny-bd", "max_output_tokens": 40}
        assert client.responses.parse(input=STORY, text_format=Total, **body).output_parsed.shells in (53, 92)
        with client.responses.stream(input=STORY, tools=FLAT, tool_choice="required", **body) as stream:
            final = stream.until_done().get_final_response()
        (call,) = final.output
        result = {"type": "function_call_output", "call_id": call.call_id, "output": [{"type": "input_text", "text": "92"}]}
        asked = {"role": "user", "content": STORY}
        assert client.responses.create(input=[asked, *final.output, result], tools=FLAT, **body).status
        answer = client.responses.create(input=[asked], **body)
        # As the official client sends it back: with every field that the server sent, and some more.
        again = [asked, *[item.model_dump() for item in answer.output], asked]
        assert answer.output_text and client.responses.create(input=again, **body).output_text
