"""Frameworks get a chat, a stream, a typed answer and a call of a function, as their users ask for them."""

import json
import shutil

import pytest
from jsonschema import validate

from dlstep import SamplingParams
from training.tokenizer import build_tokenizer

from .third_party import HERE, MODEL, client, llm

# How many interfaces of the server a client knows: chat completions, and responses.
CLIENTS = {
    "pydantic_ai": 2,
    "openai_agents": 2,
    "llama_index": 1,
    "ai_sdk": 2,
    "haystack": 1,
    "autogen": 1,
    "semantic_kernel": 1,
    "smolagents": 1,
    "promptfoo": 2,
    "inspect_ai": 2,
}
NO_STREAM = ("promptfoo",)
STORY = "Max has 53 shells. Later Max buys 39 more. How many shells does Max have?"


def closed(**properties):
    """The schema of an object with exactly these properties."""
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


THINGS = closed(count={"type": "integer"}, kind={"enum": ["shells", "eggs"]})
TOTAL = closed(things={"type": "array", "items": THINGS}, most=THINGS, sure={"type": "boolean"})
CALL = closed(first={"type": "integer"}, second={"type": "integer"})

pytestmark = pytest.mark.clients


@pytest.mark.parametrize("name", CLIENTS)
def test_framework(name, server, tmp_path, report):
    (script,) = (HERE / "frameworks").glob(f"use_{name}.*")
    command = "node" if script.suffix == ".mjs" else "python"
    if command == "node" and shutil.which("npm") is None:
        pytest.skip("node and npm are not installed")
    printed = client(name, command, str(script), server.url, MODEL, folder=tmp_path)
    reports = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    assert len(reports) == CLIENTS[name], printed
    prompt = build_tokenizer().encode(STORY, add_special_tokens=False)  # that of the chat, which adds nothing
    (expected,) = llm().generate([prompt], SamplingParams(max_tokens=100))
    for found in reports:
        assert found["chat"] == expected.text
        assert found["stream"] == (None if name in NO_STREAM else expected.text)
        validate(found["structured"], {"type": "array", "items": TOTAL, "minItems": 1})
        validate(found["calls"], {"type": "array", "items": CALL, "minItems": 1})
    report(
        f"{name}: a chat, {'no' if name in NO_STREAM else 'a'} stream, a typed answer and a call, by {CLIENTS[name]} interfaces"
    )
