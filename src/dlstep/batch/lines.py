"""Lines of a batch: parsing, and keys derived from their content. All functions are pure."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from ..core.checks import short
from ..engine.json_lines import checksum, is_intact as is_intact_line

Json = Mapping[str, Any]
OWN = "custom_id"  # names a line and is not part of its content
TRY_AGAIN = 500  # answers with this status or above may succeed on retry, so they are not stored


@dataclass(frozen=True, slots=True)
class RequestLine:
    """A request: its `custom_id`, and all other fields, which determine the answer."""

    custom_id: str
    content: Json


def read_lines(name: str, data: bytes) -> list[RequestLine]:
    """Parse the requests of a file. Raises ValueError for a line without a unique `custom_id`."""
    texts = data.split(b"\n")
    if not texts[-1]:
        texts.pop()
    numbers: dict[str, int] = {}
    lines: list[RequestLine] = []
    for number, text in enumerate(texts, 1):
        last = number == len(texts) and not data.endswith(b"\n")
        if not text.strip():
            raise ValueError(f"{name}, line {number} is empty: every line must contain a request")
        line = _parsed(name, number, text, last=last)
        custom_id = line.get(OWN)
        if not isinstance(custom_id, str) or not custom_id:
            raise ValueError(f"{name}, line {number} needs a non-empty text as its {OWN}, got {short(custom_id)}")
        if custom_id in numbers:
            first = numbers[custom_id]
            raise ValueError(f"{name}, lines {first} and {number} both have {OWN} {short(custom_id)}: give each its own")
        numbers[custom_id] = number
        lines.append(RequestLine(custom_id, {field: value for field, value in line.items() if field != OWN}))
    if not lines:
        raise ValueError(f"{name} holds no request")
    return lines


def _parsed(name: str, number: int, text: bytes, *, last: bool) -> dict[str, Any]:
    try:
        line = json.loads(text)
    except (ValueError, RecursionError) as error:
        cut = "; it is the last one and has no end, so the file may have been cut off" if last else ""
        raise ValueError(f"{name}, line {number} holds no JSON: {error}{cut}") from error
    if not isinstance(line, dict):
        raise ValueError(f"{name}, line {number} is no request, which is an object with {OWN}, method, url and body")
    return line


def content_key(facts: Json, content: Json) -> str:
    """Hash the engine's facts and a request's content, independently of the order of fields.

    Raises ValueError for a content that is nested too deeply to be written as JSON.
    """
    try:
        text = json.dumps([facts, content], sort_keys=True)
    except RecursionError as error:
        raise ValueError("a request nests lists or objects too deeply") from error
    return blake2b(text.encode(), digest_size=16).hexdigest()


def created_of(key: str) -> int:
    """Return a reproducible number for the `created` field, where the server has a time."""
    return int(key[:8], 16) >> 1


def answer_id(key: str) -> str:
    """Return the id of an answer's line."""
    return f"batch_req_{key}"


def answer_line(key: str, status: int, body: Json) -> dict[str, Any]:
    """Return the answer to a content: a line of the output without `custom_id`.

    Its `request_id` is a checksum of all other fields, which detects an altered answer in a file.
    """
    sealed = {"id": answer_id(key), "response": {"status_code": status, "body": body}, "error": None}
    response = {"status_code": status, "request_id": f"req_{checksum(sealed)}", "body": body}
    return {"id": sealed["id"], "response": response, "error": None}


def is_intact(answer: Json) -> bool:
    """Return whether an answer read from a file is unchanged, including the order of its fields."""
    response = {name: value for name, value in answer["response"].items() if name != "request_id"}
    sealed = {"id": answer["id"], "response": response, "error": answer["error"]}
    return is_intact_line(sealed, answer["response"].get("request_id"), "req_")


def lasts(answer: Json) -> bool:
    """Return whether an answer is final, not a failure that may succeed on retry."""
    return answer["response"]["status_code"] < TRY_AGAIN


def merged(parts: Iterable[Json]) -> dict[str, Json]:
    """Return final answers by id. If several answers have the same id, the first one wins."""
    answers: dict[str, Json] = {}
    for answer in parts:
        if lasts(answer):
            answers.setdefault(answer["id"], {name: answer[name] for name in ("id", "response", "error")})
    return answers


def missing(keys: Sequence[str], known: Mapping[str, Json]) -> list[int]:
    """Return the first place of each content without an answer, in ascending order."""
    first = {key: place for place, key in reversed(list(enumerate(keys)))}
    return sorted(place for key, place in first.items() if answer_id(key) not in known)


def output_lines(lines: Sequence[RequestLine], keys: Sequence[str], answers: Mapping[str, Json]) -> list[dict[str, Any]]:
    """Return the output: one line per request, in the order of the input."""
    output: list[dict[str, Any]] = []
    for line, key in zip(lines, keys, strict=True):
        answer = answers[answer_id(key)]
        output.append({"id": answer["id"], OWN: line.custom_id, "response": answer["response"], "error": answer["error"]})
    return output
