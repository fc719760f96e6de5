"""`/v1/messages`: a streamed message, folded, is the whole one, and that of a chat; as history, it is the chat's message."""

import json

import pytest

from dlstep.serve.http.anthropic import chat_of
from dlstep.serve.http.schema import ChatRequest, MessagesRequest

from ....helpers.serving import CHAT, served, tiny_llm
from .conftest import GOOD_CHAT, error_of
from .test_free_calls import TAGGED, TAGS, TEMPLATE, TOOLS
from .test_responses import FREE, STORY, few, free_chat

MESSAGES = "/v1/messages"
OWN = [
    {"name": tool["function"]["name"], "input_schema": tool["function"]["parameters"], "cache_control": {"type": "ephemeral"}}
    for tool in TOOLS
]


@pytest.fixture(scope="module")
def server():
    with served(tiny_llm().engine, template=TEMPLATE) as server:
        yield server


def plain(*, max_tokens=40, **more):
    return {"messages": [{"role": "user", "content": STORY}], "max_tokens": max_tokens, **more}


def folded(server, body):
    """The message that a client puts together from a stream."""
    with server.http() as http:
        text = http.post(MESSAGES, json={**body, "stream": True}).text
    events = [json.loads(part.partition("data: ")[2]) for part in text.removesuffix("\n\n").split("\n\n")]
    assert [f"event: {event['type']}" for event in events] == [part.split("\n")[0] for part in text.split("\n\n")[:-1]]
    message, opened = events[0]["message"], False
    for event in events[1:]:
        match event["type"]:
            case "content_block_start":
                assert not opened and event["index"] == len(message["content"])
                message["content"].append({**event["content_block"], "parts": ""})
                opened = True
            case "content_block_delta":
                assert opened and event["index"] == len(message["content"]) - 1
                message["content"][-1]["parts"] += event["delta"].get("text", event["delta"].get("partial_json"))
            case "content_block_stop":
                block, opened = message["content"][-1], False
                parts = block.pop("parts")
                block |= {"text": parts} if block["type"] == "text" else {"input": json.loads(parts)}
            case "message_delta":
                message |= event["delta"] | {"usage": event["usage"], "dlstep": event["dlstep"]}
    assert not opened and events[-1] == {"type": "message_stop"}
    return message


def freely(text):
    """The body whose answer is `text`."""
    return free_chat(text) | {"tools": OWN}


BODIES = [
    *map(freely, FREE),
    {**freely(TAGS), "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
    plain(),
    plain(max_tokens=3, system="Add.", thinking={"type": "disabled"}),
    plain(stop_sequences=["9", "="]),
    plain(tools=OWN, tool_choice={"type": "any"}),
    plain(tools=OWN, tool_choice={"type": "tool", "name": "add"}),
    plain(messages=[{"role": "user", "content": STORY}, {"role": "assistant", "content": "39+"}]),
]


def comparable(message):
    text = json.dumps(message).replace(message["id"].removeprefix("msg_"), "ID")
    usage = message["usage"]
    total = usage["input_tokens"] + usage["cache_read_input_tokens"]
    return json.loads(text) | {"usage": {"output_tokens": usage["output_tokens"], "total": total}}


@pytest.mark.parametrize("body", few(BODIES, 3, 9))
def test_a_stream_is_the_whole_message_and_that_of_the_chat(server, body):
    whole = server.post(MESSAGES, **body)
    assert comparable(folded(server, body)) == comparable(whole) and whole["id"].startswith("msg_")
    translated = chat_of(MessagesRequest.model_validate(body)).model_dump(exclude_unset=True, by_alias=True)
    (choice,) = server.post(CHAT, **translated | {"model": None, "dlstep": body.get("dlstep", {})})["choices"]
    message = choice["message"]
    blocks = {kind: [block for block in whole["content"] if block["type"] == kind] for kind in ("text", "tool_use")}
    assert "".join([block["text"] for block in blocks["text"]]) == (message["content"] or "")
    calls = [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in message.get("tool_calls", [])]
    assert [(block["name"], block["input"]) for block in blocks["tool_use"]] == calls
    ended = "tool_use" if blocks["tool_use"] and whole["content"][-1]["type"] == "tool_use" else "end_turn"
    ended = "stop_sequence" if whole["stop_sequence"] else ended
    assert whole["stop_reason"] == ("max_tokens" if choice["finish_reason"] == "length" else ended)
    assert whole["stop_sequence"] in (None, "9") and (whole["stop_sequence"] == "9") == ("stop_sequences" in body)


def test_a_message_and_results_of_tools_are_history(server):
    content = server.post(MESSAGES, **freely("It is 92." + TAGGED[1] + TAGGED[0]))["content"]
    results = [{"type": "tool_result", "tool_use_id": block["id"], "content": "92"} for block in content if "id" in block]
    turns = [
        {"role": "assistant", "content": content},
        {"role": "user", "content": [*results, {"type": "text", "text": "So?"}]},
    ]
    chat = chat_of(MessagesRequest.model_validate(plain(messages=turns, system=[{"type": "text", "text": "Add."}])))
    assert [message.role for message in chat.messages] == ["system", "assistant", *["tool"] * len(results), "user"]
    assert isinstance(chat, ChatRequest) and len(results) == 2
    calls = chat.messages[1].tool_calls or []
    assert [(call.id, call.function.name, call.function.arguments) for call in calls] == [
        (block["id"], block["name"], block["input"]) for block in content if "id" in block
    ]
    assert [message.tool_call_id for message in chat.messages[2:-1]] == [call.id for call in calls]


@pytest.mark.parametrize(
    "fields, param",
    [
        ({"max_tokens": 0}, "max_tokens"), ({"max_tokens": 10_000}, "max_tokens"), ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "messages"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages"), ({"messages": [{"content": "x"}]}, "messages.role"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "thinking"), ({"stop": "x"}, "stop"), ({"n": 2}, "n"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools.0.type"),
        ({"tools": [{"name": "a", "input_schema": [], "x": 1}]}, "tools.0.input_schema"),
        ({"tools": OWN, "tool_choice": {"type": "tool", "name": "nope"}}, "tool_choice"),
        ({"stop_sequences": ["x" * 2000]}, "stop_sequences.0"), ({"container": "x"}, "container"),
    ],
)  # fmt: skip
def test_errors_have_the_shape_of_both_and_name_the_field(server, fields, param):
    reply = server.post(MESSAGES, status=400, **plain(**fields))
    assert reply["type"] == "error"
    assert (reply["error"]["type"], reply["error"]["param"]) == ("invalid_request_error", param), reply


def test_a_key_is_read_from_anthropics_header():
    with served(keys=("sesame",), template=TEMPLATE) as server, server.http() as http:
        for key, status in (("sesame", 200), ("other", 401)):
            response = http.post(MESSAGES, json=GOOD_CHAT, headers={"x-api-key": key})
            assert response.status_code == status, response.text
    assert error_of(response)["code"] == "invalid_api_key" and response.json()["error"]["type"] == "authentication_error"
