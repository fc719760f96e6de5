"""Hostile requests: bodies of every kind up to a limit, for every route that takes one."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from ...helpers.serving import CHAT, COMPLETIONS
from ...unit.serve.http.conftest import GOOD as GOOD_COMPLETION, GOOD_CHAT

FORK, RESPONSES, TOKENIZE, DETOKENIZE = "/v1/requests/cmpl-1/fork", "/v1/responses", "/tokenize", "/detokenize"


class Body(NamedTuple):
    """A body for a route, with a name for messages."""

    name: str
    path: str
    content: bytes


# JSON values that are small to write and dear to read, to check or to report, by name.
ITEMS: dict[str, str] = {
    "floats": "1.5", "integers": "7", "negative": "-1", "large integers": "9" * 60, "tiny floats": "1e-400", "texts": '""',
    "one-letter texts": '"a"', "nulls": "null", "booleans": "true", "lists": "[]", "objects": "{}", "pairs": '{"a":1}',
    "nested lists": "[[[]]]", "messages without content": '{"role":"user"}', "messages": '{"role":"user","content":"a"}',
    "parts": '{"type":"text","text":""}', "escapes": '"\\u0041"', "surrogates": '"\\ud800"', "id lists": "[5]",
}  # fmt: skip

# The fields of each route that hold lists, objects or texts; those of a chat's messages are named by a path.
FIELDS: dict[str, tuple[str, ...]] = {
    COMPLETIONS: ("prompt", "stop", "stop_token_ids", "logit_bias", "bad_words", "dlstep", "dlstep.pinned", "dlstep.canvas",
                  "dlstep.accept_threshold", "suffix", "user", "metadata", "stream_options", "model", "seed", "unknown"),
    CHAT: ("messages", "messages.content", "messages.role", "tools", "tool_choice", "response_format", "stop", "metadata"),
    RESPONSES: ("input", "tools", "tool_choice", "text", "metadata"),
    FORK: ("dlstep", "dlstep.rule", "dlstep.accept_threshold", "seq", "unknown"),
    TOKENIZE: ("prompt", "messages", "messages.content"),
    DETOKENIZE: ("tokens", "model"),
}  # fmt: skip
GOOD: dict[str, dict[str, Any]] = {
    COMPLETIONS: GOOD_COMPLETION,
    CHAT: GOOD_CHAT,
    RESPONSES: {"input": "x", "max_output_tokens": 1},
    FORK: {"seq": 0},
    TOKENIZE: {"prompt": "x"},
    DETOKENIZE: {"tokens": [1]},
}


def values(size: int) -> Iterator[tuple[str, str]]:
    """JSON texts of about `size` bytes: long lists, long objects, long texts and numbers, deep nests."""
    for name, item in ITEMS.items():
        yield f"a list of {name}", "[" + ",".join([item] * (size // (len(item) + 1))) + "]"
    for name in ("floats", "integers", "lists", "one-letter texts"):
        width = len(ITEMS[name]) + 10
        yield f"an object of {name}", "{" + ",".join(f'"{n:06}":{ITEMS[name]}' for n in range(size // width)) + "}"
    yield "a long text", '"' + "a" * size + '"'
    yield "a long text of escapes", '"' + "\\u00e9" * (size // 6) + '"'
    yield "a number of too many digits", "1" * size
    yield "a long exponent", "1e" + "9" * size
    yield "numbers of many digits", "[" + ",".join(["9" * 4300] * (size // 4301)) + "]"
    yield "deep lists", "[" * (size // 2) + "]" * (size // 2)
    yield "lists of some depth", "[" + ",".join(["[" * 400 + "]" * 400] * (size // 801)) + "]"
    yield "objects of some depth", '{"a":' * min(900, size // 6) + "1" + "}" * min(900, size // 6)
    yield "one name many times", "{" + ",".join(['"a":1'] * (size // 6)) + "}"


def bodies(limit: int) -> Iterator[Body]:
    """Yield each hostile value in each field of each route, and bodies that are not objects, up to `limit` bytes."""
    for path, fields in FIELDS.items():
        for field in fields:
            size = limit - len(_with(path, field, "")) - 8
            for name, value in values(size):
                yield Body(f"{name} as {field} of {path}", path, _with(path, field, value))
        for name, value in values(limit - 8):
            yield Body(f"{name} as the body of {path}", path, value.encode())
        yield Body(f"an unfinished body of {path}", path, b'{"prompt": "' + b"x" * (limit - 12))
        yield Body(f"blanks before {path}", path, b" " * limit)
        yield Body(f"bytes that are no text for {path}", path, b"\xff" * limit)


def _with(path: str, field: str, value: str) -> bytes:
    """Return a valid body of a route with one field replaced by a value."""
    first, _, rest = field.partition(".")
    if first == "messages" and rest:
        message = {"role": "user", "content": "x"} | {rest: None}
        value = json.dumps([message]).replace("null", value)
    elif rest:
        value = '{"' + rest + '":' + value + "}"
    kept = {
        name: given for name, given in GOOD[path].items() if name != first and not (path == TOKENIZE and first == "messages")
    }
    return (json.dumps(kept)[:-1] + (", " if kept else "") + f'"{first}": {value}' + "}").encode()
