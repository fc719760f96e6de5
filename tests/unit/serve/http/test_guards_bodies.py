"""Bodies that cannot be read, are too large or come too slowly."""

import json
from contextlib import ExitStack

import pytest

from ....helpers.serving import CHAT, COMPLETIONS, served
from .conftest import GOOD, error_of
from .test_connections import HEAD
from .test_server import raw

UNREADABLE = [
    *((COMPLETIONS, content) for content in (b"", b"{", b"\xff\xfe", b"[" * 100_000)),
    (COMPLETIONS, b'{"prompt": ' + b'{"a":' * 30_000 + b"1" + b"}" * 30_001),
    (COMPLETIONS, b'{"prompt": "x", "seed": ' + b"9" * 5000 + b"}"),
    (CHAT, b'{"messages": [], "max_tokens": -' + b"1" * 9999 + b"}"),
    (COMPLETIONS, rb'{"prompt": "a\ud800"}'),
    (COMPLETIONS, rb'{"prompt": ["x", "\udfff"]}'),
    (COMPLETIONS, rb'{"prompt": "x", "stop": ["\ud800"]}'),
    (CHAT, rb'{"messages": [{"role": "user", "content": "\ud800"}]}'),
    ("/tokenize", rb'{"prompt": "\ud800"}'),
]


@pytest.mark.parametrize(
    "path, content, code",
    [
        *((*each, "invalid_json") for each in UNREADABLE),
        (COMPLETIONS, b"[]", "invalid_type"),
        (COMPLETIONS, b"null", "invalid_type"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_body_that_is_no_json_object_is_refused(http, path, content, code):
    error = error_of(http.post(path, content=content, headers={"Content-Type": "application/json"}))
    assert (error["param"], error["code"]) == (None, code)


def test_a_compressed_body_is_refused(http):
    content, kind = json.dumps(GOOD).encode(), {"Content-Type": "application/json"}
    assert http.post(COMPLETIONS, content=content, headers=kind | {"Content-Encoding": "identity"}).status_code == 200
    for coding in ("gzip", "br, gzip", "x"):
        response = http.post(COMPLETIONS, content=content, headers=kind | {"Content-Encoding": coding})
        assert error_of(response)["code"] == "invalid_content_encoding"


def test_a_body_that_is_too_large_is_refused_before_it_is_read():
    with served(max_body_bytes=1000) as server, server.http() as http:
        large = {"prompt": "x" * 2000}
        assert error_of(http.post(COMPLETIONS, json=large))["code"] == "body_too_large"
        parts = (b"x" * 100 for _ in range(20))
        assert http.post(COMPLETIONS, content=parts, headers={"Content-Type": "application/json"}).status_code == 413
        with raw(server.url, HEAD + b"Content-Length: 2000\r\nExpect: 100-continue\r\n\r\n") as announced:
            assert b" 413 " in announced.recv(4096).partition(b"\r\n")[0]
        assert server.choice(**GOOD)


def test_slow_senders_delay_no_other():
    with served(body_timeout=0.5) as server, ExitStack() as stack:
        for sent in (HEAD, HEAD + b"Content-Length: 50\r\n\r\n{"):
            slow = [stack.enter_context(raw(server.url, sent)) for _ in range(30)]
        assert server.choice(**GOOD)
        assert b" 408 " in slow[0].recv(4096)
