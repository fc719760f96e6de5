"""Lines of a batch: parsing, and keys derived from their content. All functions are pure."""

import json
from hashlib import blake2b
from typing import NamedTuple

from ..core import Json, short
from ..engine.json_lines import parsed

OWN = "custom_id"  # names a line and is not part of its content
BatchItem = tuple[int, str, Json]  # the place of a request in the file, the key of its content, and its content


class RequestLine(NamedTuple):
    """A request: its `custom_id`, and all other fields, which determine the answer."""

    custom_id: str
    content: Json


class AnsweredRequest(NamedTuple):
    """The answer to the request at `place`. `beside`: values that depend on other requests."""

    place: int
    status: int
    body: Json
    beside: Json


def read_lines(name: str, data: bytes) -> list[RequestLine]:
    """Parse the requests of a file, skipping blank lines. Raises ValueError for a line without a unique `custom_id`."""
    numbers: dict[str, int] = {}
    lines: list[RequestLine] = []
    for number, text in enumerate(data.removesuffix(b"\n").split(b"\n"), 1):
        if not text.strip():
            continue
        line = parsed(text, f"{name}, line {number}")
        if not isinstance(line, dict):
            raise ValueError(f"{name}, line {number} is no request, which is an object with {OWN}, method, url and body")
        custom_id = line.pop(OWN, None)
        if not isinstance(custom_id, str) or not custom_id:
            raise ValueError(f"{name}, line {number} needs a non-empty text as its {OWN}, got {short(custom_id)}")
        if custom_id in numbers:
            first = numbers[custom_id]
            raise ValueError(f"{name}, lines {first} and {number} both have {OWN} {short(custom_id)}: give each its own")
        numbers[custom_id] = number
        lines.append(RequestLine(custom_id, line))
    return lines


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


def answer_line(key: str, status: int, body: Json) -> Json:
    """Return the answer to the content with this key: a line of the output without `custom_id`."""
    response = {"status_code": status, "request_id": f"req_{key}", "body": body}
    return {"id": answer_id(key), "response": response, "error": None}
