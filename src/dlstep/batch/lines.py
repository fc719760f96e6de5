"""Lines of a batch: read, told apart, and keyed by their content. Everything here is a pure function."""

import json
from collections.abc import Iterable, Mapping, Sequence as Items
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from ..core.checks import short
from ..engine.json_lines import checksum, is_intact as is_intact_line

Json = Mapping[str, Any]
OWN = "custom_id"  # names a line, and is no part of its content
TRY_AGAIN = 500  # statuses from here on are no function of the request: such an answer is not kept


@dataclass(frozen=True, slots=True)
class Line:
    """A request: its own name, and everything else in it, on which its answer depends."""

    custom_id: str
    content: Json


def read_lines(name: str, data: bytes) -> list[Line]:
    """The requests of a file. Raises ValueError for a line without a name of its own, which could not be answered."""
    texts = data.split(b"\n")
    if not texts[-1]:
        texts.pop()
    numbers: dict[str, int] = {}
    lines: list[Line] = []
    for number, text in enumerate(texts, 1):
        last = number == len(texts) and not data.endswith(b"\n")
        if not text.strip():
            raise ValueError(f"{name}, line {number} is empty: every line holds a request, none is left out")
        line = _parsed(name, number, text, last=last)
        custom_id = line.get(OWN)
        if not isinstance(custom_id, str) or not custom_id:
            raise ValueError(f"{name}, line {number} has no {OWN}, a text that names its answer, got {short(custom_id)}")
        if custom_id in numbers:
            first = numbers[custom_id]
            raise ValueError(f"{name}, lines {first} and {number} both have {OWN} {short(custom_id)}: give each its own")
        numbers[custom_id] = number
        lines.append(Line(custom_id, {field: value for field, value in line.items() if field != OWN}))
    if not lines:
        raise ValueError(f"{name} holds no request")
    return lines


def _parsed(name: str, number: int, text: bytes, *, last: bool) -> dict[str, Any]:
    try:
        line = json.loads(text)
    except (ValueError, RecursionError) as error:
        cut = "; it is the last one and has no end, so the file may have been cut off" if last else ""
        raise ValueError(f"{name}, line {number} holds no JSON: {short(str(error))}{cut}") from error
    if not isinstance(line, dict):
        raise ValueError(f"{name}, line {number} is no request, which is an object with {OWN}, method, url and body")
    return line


def content_key(facts: Json, content: Json) -> str:
    """The key of an answer: of the facts of the engine and the content of the request, whatever the order of its fields."""
    text = json.dumps([facts, content], sort_keys=True)
    return blake2b(text.encode(), digest_size=16).hexdigest()


def created_of(key: str) -> int:
    """A number in place of the time of an answer, which would be another one each time."""
    return int(key[:8], 16) >> 1


def answer_id(key: str) -> str:
    """The id of an answer's line."""
    return f"batch_req_{key}"


def answer_line(key: str, status: int, body: Json) -> dict[str, Any]:
    """Return the answer to a content: a line of the output without the name of its request.

    Its `request_id` is a checksum of all its other fields, which detects an answer that was altered in a file.
    """
    sealed = {"id": answer_id(key), "response": {"status_code": status, "body": body}, "error": None}
    response = {"status_code": status, "request_id": f"req_{checksum(sealed)}", "body": body}
    return {"id": sealed["id"], "response": response, "error": None}


def is_intact(answer: Json) -> bool:
    """Return whether an answer read from a file is unchanged since it was written, including the order of its fields."""
    response = {name: value for name, value in answer["response"].items() if name != "request_id"}
    sealed = {"id": answer["id"], "response": response, "error": answer["error"]}
    return is_intact_line(sealed, answer["response"].get("request_id"), "req_")


def lasts(answer: Json) -> bool:
    """Whether an answer is a function of its request, and not a failure that may not come again."""
    return answer["response"]["status_code"] < TRY_AGAIN


def merged(parts: Iterable[Json]) -> dict[str, Json]:
    """The answers of several parts by their id. The first one of an id stands; what is no lasting answer is left out."""
    found: dict[str, Json] = {}
    for answer in parts:
        if lasts(answer):
            found.setdefault(answer["id"], {name: answer[name] for name in ("id", "response", "error")})
    return found


def missing(keys: Items[str], known: Mapping[str, Json]) -> list[int]:
    """The places of the first request of each content that has no answer, in order."""
    first = {key: place for place, key in reversed(list(enumerate(keys)))}
    return sorted(place for key, place in first.items() if answer_id(key) not in known)


def output_lines(lines: Items[Line], keys: Items[str], answers: Mapping[str, Json]) -> list[dict[str, Any]]:
    """The output, a line for each request, in their order."""
    found: list[dict[str, Any]] = []
    for line, key in zip(lines, keys, strict=True):
        answer = answers[answer_id(key)]
        found.append({"id": answer["id"], OWN: line.custom_id, "response": answer["response"], "error": answer["error"]})
    return found
