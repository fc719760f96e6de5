"""LangChain and instructor get typed answers and calls of functions at the first attempt, 8 of each kind at a time."""

import json
from pathlib import Path

import pytest
from jsonschema import validate

from .third_party import MODEL, client

SCRIPT = Path(__file__).with_name("structured_answers.py")
TOTAL = {
    "type": "object",
    "properties": {"shells": {"type": "integer"}, "kind": {"enum": ["shells", "eggs"]}, "sure": {"type": "boolean"}},
    "required": ["shells", "kind", "sure"],
    "additionalProperties": False,
}
ARGUMENTS = {
    "type": "object",
    "properties": {"first": {"type": "integer"}, "second": {"type": "integer"}},
    "required": ["first", "second"],
}
WAYS = 7

pytestmark = pytest.mark.clients


def test_answers_are_typed(server, tmp_path, report):
    printed = client("structured", "python", str(SCRIPT), server.url, MODEL, folder=tmp_path)
    found = json.loads(printed.splitlines()[-1])
    assert len(found) == WAYS
    for name, answers in found.items():
        for answer in answers:
            validate(answer, {"type": "array", "items": ARGUMENTS, "minItems": 1} if name == "langchain tools" else TOTAL)
        assert len(answers) == 8 and all(answer == answers[0] for answer in answers), name
    report(f"LangChain and instructor: {WAYS} ways to ask, 8 valid answers each: {', '.join(found)}")
