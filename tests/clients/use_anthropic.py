"""Anthropic's official client: a message, its stream, tools, a continued answer, a stop sequence and errors."""

import json
import sys
from typing import Any

import anthropic

URL, MODEL = sys.argv[1:]
STORY = "Max has 53 shells. Later Max buys 39 more. How many shells does Max have?"
SCHEMA = {"type": "object", "properties": {"first": {"type": "integer"}}, "required": ["first"], "additionalProperties": False}
ADD: Any = {"name": "add", "description": "Add.", "input_schema": SCHEMA, "cache_control": {"type": "ephemeral"}}
client = anthropic.Anthropic(base_url=URL, api_key="sesame", max_retries=0)
asked: Any = {"role": "user", "content": STORY}
common: Any = {"model": MODEL, "max_tokens": 100, "messages": [asked]}

message = client.messages.create(system=[{"type": "text", "text": ""}], **common)
with client.messages.stream(**common) as stream:
    streamed = "".join(stream.text_stream)
    final = stream.get_final_message()
assert final.content[0].text == message.content[0].text and final.stop_reason == message.stop_reason
assert final.usage.output_tokens == message.usage.output_tokens
called = client.messages.create(tools=[ADD], tool_choice={"type": "any"}, **common)
with client.messages.stream(tools=[ADD], tool_choice={"type": "tool", "name": "add"}, **common) as stream:
    block = stream.get_final_message().content[0]
result = {"type": "tool_result", "tool_use_id": block.id, "content": [{"type": "text", "text": STORY}]}
turns = [asked, {"role": "assistant", "content": [block]}, {"role": "user", "content": [result]}]
after = client.messages.create(tools=[ADD], **common | {"messages": turns})
errors = []
for other, body in ((client, {"max_tokens": 0}), (client, {"model": "none"}), (client.with_options(api_key="x"), {})):
    try:
        other.messages.create(**common | body)
    except anthropic.APIStatusError as error:
        errors.append([type(error).__name__, error.type])
print(json.dumps({
    "text": message.content[0].text, "stream": streamed, "ends": [message.stop_reason, called.stop_reason],
    "calls": [called.content[0].input, block.input], "after": after.content[0].text, "errors": errors,
}))  # fmt: skip
