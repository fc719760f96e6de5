"""`max_tokens` never cuts JSON: an answer conforms, or its request is refused when it arrives."""

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from jsonschema import validate
from openai import BadRequestError

from dlstep import LLM, SamplingParams

from ..helpers.serving import served, tiny_llm

STORY = "Max has 53 shells. Later Max buys 39 more. How many shells does Max have?"
ANY: dict[str, Any] = {"type": "object"}
BOUNDED: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "steps": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
        "kind": {"enum": ["shells", "eggs"]},
    },
    "required": ["name", "kind"],
}
CASES = [
    ("tiny-bd", ANY, range(1, 201)),
    ("tiny-bd", BOUNDED, (*range(1, 61), *range(61, 201, 7))),
    *[(model, BOUNDED, range(11, 201, 14)) for model in ("tiny-d2f", "tiny-fdv2", "tiny-llada")],
]


def check_answers(schema: dict[str, Any], answers: dict[int, str | None]) -> None:
    """Every answer conforms, and only the lengths below some number are refused (None)."""
    refused = [length for length, text in answers.items() if text is None]
    assert refused and refused == [length for length in answers if length <= max(refused)] and len(refused) < len(answers)
    for text in answers.values():
        if text is not None:
            validate(json.loads(text), schema)


@pytest.mark.parametrize(("model", "schema", "lengths"), CASES)
def test_llm_answers_conform_at_every_max_tokens(model: str, schema: dict[str, Any], lengths: Sequence[int]) -> None:
    llm = tiny_llm() if model == "tiny-bd" else LLM(model)
    params = [SamplingParams(max_tokens=length, temperature=1.0, json_schema=json.dumps(schema)) for length in lengths]
    outputs = llm.generate([STORY] * len(params), params, progress=False)
    assert {output.finish_reason for output in outputs} == {"stop", "length", "rejected"}
    assert all("raise max_tokens" in output.error for output in outputs if output.finish_reason == "rejected")
    texts = [None if output.finish_reason == "rejected" else output.text for output in outputs]
    check_answers(schema, dict(zip(lengths, texts, strict=True)))


@pytest.mark.parametrize("schema", [ANY, BOUNDED])
def test_server_answers_conform_at_every_max_tokens(schema: dict[str, Any]) -> None:
    form: Any = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    with served(tiny_llm().engine) as server, ThreadPoolExecutor(8) as threads:
        client = server.client()

        def answer(length: int) -> str | None:
            messages: Any = [{"role": "user", "content": STORY}]
            try:
                choice = client.chat.completions.create(
                    model="tiny-bd", messages=messages, max_tokens=length, temperature=1.0, seed=length, response_format=form
                ).choices[0]
            except BadRequestError as error:
                assert error.param == "max_tokens" and "raise max_tokens" in error.message
                return None
            assert choice.finish_reason == "stop"  # "length" is what clients take for a cut answer
            return choice.message.content

        lengths = (*range(1, 33, 3), *range(33, 201, 24))
        check_answers(schema, dict(zip(lengths, threads.map(answer, lengths), strict=True)))
