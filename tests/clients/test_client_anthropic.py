"""Anthropic's unmodified client gets messages, streams, calls of tools and errors from `/v1/messages`."""

import json
from pathlib import Path

import pytest

from dlstep import SamplingParams

from .third_party import MODEL, client, llm

SCRIPT = Path(__file__).with_name("use_anthropic.py")
STORY = "Max has 53 shells. Later Max buys 39 more. How many shells does Max have?"

pytestmark = pytest.mark.clients


def test_messages(server, tmp_path, report):
    found = json.loads(client("anthropic", "python", str(SCRIPT), server.url, MODEL, folder=tmp_path).splitlines()[-1])
    prompt = llm().engine.tokenizer.encode(STORY, add_special_tokens=False)
    (expected,) = llm().generate([prompt], SamplingParams(max_tokens=100))
    assert found["text"] == found["stream"] == expected.text and found["ends"] == ["end_turn", "tool_use"]
    assert all(isinstance(call["first"], int) for call in found["calls"]) and found["after"]
    assert found["errors"] == [
        ["BadRequestError", "invalid_request_error"],
        ["NotFoundError", "not_found_error"],
        ["AuthenticationError", "authentication_error"],
    ]
    report("anthropic: a message, streams, calls and errors")
