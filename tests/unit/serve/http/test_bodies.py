"""Bodies of every kind: neutral fields pass, what cannot be done is a 400 that names its field, and nothing is a 5xx."""

import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings, strategies as st

from dlstep.serve.http.guards import OPEN
from dlstep.serve.http.schema import ChatRequest, CompletionRequest, Sampling

from ....helpers.serving import Served, served, shadow_engine

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
GOOD = {"prompt": "x", "max_tokens": 4}
GOOD_CHAT = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 4}


@pytest.fixture(scope="module")
def shadow(template: Any) -> Iterator[Served]:
    """A server without a network behind it."""
    with served(shadow_engine(), chat_template=str(template)) as server:
        yield server


@pytest.fixture(scope="module")
def http(shadow: Served) -> Iterator[httpx2.Client]:
    """A client of it."""
    with shadow.http() as client:
        yield client


def refused(http: httpx2.Client, body: Any, path: str = COMPLETIONS) -> dict[str, Any]:
    """The error of a body that is wrong."""
    response = http.post(path, content=json.dumps(body), headers={"Content-Type": "application/json"})
    assert response.status_code == 400, response.text
    return response.json()["error"]


NEUTRAL: dict[str, Any] = {
    "frequency_penalty": 0, "presence_penalty": 0.0, "repetition_penalty": 1.0, "length_penalty": 1, "min_tokens": 0,
    "logit_bias": {}, "use_beam_search": False, "skip_special_tokens": True, "bad_words": [], "user": "somebody", "n": 1,
    "service_tier": "auto", "metadata": {"run": "7"}, "prompt_cache_key": "a", "safety_identifier": "b", "store": False,
    "temperature": 0, "top_p": 1, "top_k": -1, "min_p": 0, "seed": None, "stop": None, "ignore_eos": False, "stream": False,
    "stop_token_ids": [], "stream_options": {"include_usage": False, "continuous_usage_stats": False}, "dlstep": {},
}  # fmt: skip
OF_COMPLETIONS: dict[str, Any] = {"best_of": 1, "suffix": "", "echo": False, "logprobs": None, "add_special_tokens": True}
OF_CHAT: dict[str, Any] = {
    "tools": [], "tool_choice": "none", "parallel_tool_calls": True, "response_format": {"type": "text"}, "logprobs": False,
    "top_logprobs": 0, "max_completion_tokens": 4, "add_generation_prompt": True,
}  # fmt: skip


def test_neutral_values_pass_alone_and_together(http: httpx2.Client) -> None:
    for path, good, more in ((COMPLETIONS, GOOD, OF_COMPLETIONS), (CHAT, GOOD_CHAT, OF_CHAT)):
        bodies = [{name: value} for name, value in (NEUTRAL | more).items()]
        for body in (*bodies, NEUTRAL | more, dict.fromkeys(NEUTRAL | more, None) | {"dlstep": {}}):
            response = http.post(path, json=good | body)
            assert response.status_code == 200, (body, response.text)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("frequency_penalty", 0.5), ("presence_penalty", -1), ("repetition_penalty", 1.1), ("best_of", 2), ("suffix", "end"),
        ("logit_bias", {"5": 1}), ("min_tokens", 1), ("use_beam_search", True), ("skip_special_tokens", False),
        ("logprobs", 2), ("temperature", "0.5"), ("temperature", False), ("temperature", -0.1), ("temperature", 1e-31),
        ("top_p", 0), ("top_p", 1.5), ("top_k", -2), ("min_p", 2), ("n", 0), ("n", 129), ("n", True), ("max_tokens", 0),
        ("max_tokens", 1 << 70), ("seed", 1 << 64), ("seed", 0.5), ("stop", ""), ("stop", [""]), ("stop", 5),
        ("stop", ["a"] * 65), ("stop_token_ids", [-1]), ("stop_token_ids", [1 << 40]), ("stop_token_ids", [100_000]),
        ("prompt", ""), ("prompt", []), ("prompt", [[]]), ("prompt", [1, "a"]), ("prompt", None), ("prompt", [100_000]),
        ("prompt", [1]), ("prompt", "x " * 5000), ("prompt", "x" * 128), ("stream", 1), ("stream_options", {"x": 1}),
        ("echo", "yes"), ("unknown", 1), ("top_k", 1e400), ("user", 5),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_refused_by_the_name_of_its_field(http: httpx2.Client, field: str, value: Any) -> None:
    body = json.dumps(GOOD | {field: value}).replace("Infinity", "1e400")
    response = http.post(COMPLETIONS, content=body, headers={"Content-Type": "application/json"})
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error["param"] is not None and error["param"].split(".")[0] == field, error
    assert error["type"] == "invalid_request_error" and len(error["message"]) > 10


@pytest.mark.parametrize(
    ("param", "given"),
    [
        ("accept_threshold", 1.5), ("accept_threshold", "high"), ("no_such_option", 1), ("block_size", 16), ("max_nfe", 0),
        ("stream", "all"), ("pinned", {"500": 5}), ("pinned", {"0": 1}), ("pinned", {"a": 5}), ("canvas", [5]),
        ("rule", "./evil.py"), ("rule", "os.path"), ("rule", {"a": 1}), ("inner", "evil.module"), ("max_repetition_run", 1),
    ],
)  # fmt: skip
def test_an_option_that_cannot_be_is_refused_by_its_name(http: httpx2.Client, param: str, given: Any) -> None:
    error = refused(http, GOOD | {"dlstep": {param: given}})
    assert error["param"].startswith(f"dlstep.{param}"), error


def test_a_text_that_cannot_fit_is_refused_before_it_is_encoded(http: httpx2.Client) -> None:
    error = refused(http, GOOD | {"prompt": "x" * 100_000})
    assert (error["param"], error["code"]) == ("prompt", "context_length_exceeded") and "characters" in error["message"]
    messages = [{"role": "user", "content": "x" * 100_000}]
    assert refused(http, {"messages": messages}, CHAT)["param"] == "messages"


def test_a_rule_may_be_named(http: httpx2.Client) -> None:
    options = {"rule": "quota", "steps_per_block": 2}
    found = http.post(COMPLETIONS, json=GOOD | {"dlstep": options})
    assert found.status_code in (200, 400)  # as the strategy has it: blocks of other sizes are refused by a sentence
    if found.status_code == 400:
        assert "set them for the engine" in found.json()["error"]["message"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("messages", []), ("messages", "hello"), ("messages", [{"role": "user"}]), ("tools", [{"type": "function"}]),
        ("messages", [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]), ("top_logprobs", 1),
        ("response_format", {"type": "json_object"}), ("tool_choice", "required"), ("max_completion_tokens", 5),
        ("messages", [{"role": "user", "content": ""}]),
    ],
)  # fmt: skip
def test_what_a_chat_cannot_do_is_refused(http: httpx2.Client, field: str, value: Any) -> None:
    body = GOOD_CHAT | {field: value}
    param = refused(http, body, CHAT)["param"]
    assert param.split(".")[0] in (field, "max_tokens"), param


def test_a_message_may_come_in_parts(http: httpx2.Client) -> None:
    parts = [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]
    answers = [
        http.post(CHAT, json={**GOOD_CHAT, "messages": [{"role": "user", "content": content}]}).json()["choices"][0]["message"]
        for content in ("hello", parts)
    ]
    assert answers[0] == answers[1]


def test_the_schema_says_what_responses_are() -> None:
    """Shapes, statuses, the form of streams and metrics, and which paths ask for a key."""
    with served(shadow_engine(), keys=("sesame",)) as server, server.http() as http:
        schema = http.get("/openapi.json", headers={"Authorization": "Bearer sesame"}).json()
    for path, methods in schema["paths"].items():
        for operation in methods.values():
            assert ("security" in operation) == (path not in OPEN), path
            assert {"200", "408", "413"} <= operation["responses"].keys()
            for status, response in operation["responses"].items():
                forms = response.get("content", {})
                assert {} not in [form.get("schema", form.get("itemSchema")) for form in forms.values()], (path, status)
                if status == "200":
                    streams = ["text/event-stream"] if path in (COMPLETIONS, CHAT) or path.endswith("/fork") else []
                    assert [*forms] == (["text/plain"] if path == "/metrics" else ["application/json", *streams])


def test_echo_and_logprobs_do_not_go_together(http: httpx2.Client) -> None:
    assert refused(http, GOOD | {"echo": True, "logprobs": 0})["param"] == "echo"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"prompt": NaN}', b"[" * 100_000])
def test_what_is_no_json_object_is_refused(http: httpx2.Client, content: bytes) -> None:
    response = http.post(COMPLETIONS, content=content, headers={"Content-Type": "application/json"})
    assert response.status_code == 400 and response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "content", "param", "words"),
    [
        (COMPLETIONS, b"[" * 100_000, None, "nests lists or objects too deeply"),
        (COMPLETIONS, b'{"prompt": ' + b'{"a":' * 30_000 + b"1" + b"}" * 30_001, None, "nests lists or objects too deeply"),
        (COMPLETIONS, b'{"prompt": "x", "seed": ' + b"9" * 5000 + b"}", None, "an integer with more than 4300 digits"),
        (CHAT, b'{"messages": [], "max_tokens": -' + b"1" * 9999 + b"}", None, "an integer with more than 4300 digits"),
        (COMPLETIONS, rb'{"prompt": "a\ud800"}', None, "half of a surrogate pair"),
        (COMPLETIONS, rb'{"prompt": ["x", "\udfff"]}', None, "half of a surrogate pair"),
        (COMPLETIONS, rb'{"prompt": "x", "stop": ["\ud800"]}', None, "half of a surrogate pair"),
        (CHAT, rb'{"messages": [{"role": "user", "content": "\ud800"}]}', None, "half of a surrogate pair"),
        ("/tokenize", rb'{"prompt": "\ud800"}', None, "half of a surrogate pair"),
    ],
    ids=lambda value: None if isinstance(value, bytes) else str(value),
)
def test_bodies_that_cannot_be_read_are_told_why(
    http: httpx2.Client, path: str, content: bytes, param: str | None, words: str
) -> None:
    response = http.post(path, content=content, headers={"Content-Type": "application/json"})
    error = response.json()["error"]
    assert response.status_code == 400 and words in error["message"], error
    assert (error["param"] or "").split(".")[0] == (param or "")


def test_unknown_paths_and_methods_are_told_in_the_same_form(http: httpx2.Client) -> None:
    for method, path, status in (("GET", "/nothing", 404), ("GET", COMPLETIONS, 405), ("POST", "/health", 405)):
        response = http.request(method, path)
        assert response.status_code == status and path in response.json()["error"]["message"]


def test_a_body_that_is_too_large_is_refused_before_it_is_read() -> None:
    with served(shadow_engine(), max_body_bytes=1000) as server, server.http() as http:
        large = {"prompt": "x" * 2000}
        assert http.post(COMPLETIONS, json=large).status_code == 413
        parts = (b"x" * 100 for _ in range(20))
        assert http.post(COMPLETIONS, content=parts, headers={"Content-Type": "application/json"}).status_code == 413
        assert http.post(COMPLETIONS, json=GOOD).status_code == 200


def test_slow_senders_hold_nobody_up() -> None:
    with served(shadow_engine(), body_timeout=0.5) as server, server.http() as http:
        host, port = server.url.removeprefix("http://").split(":")
        slow = [socket.create_connection((host, int(port))) for _ in range(60)]
        try:
            for number, connection in enumerate(slow):
                head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                connection.sendall(head if number % 2 else head + b"Content-Length: 50\r\n\r\n{")
            assert http.post(COMPLETIONS, json=GOOD).status_code == 200
            slow[0].settimeout(30)
            assert b" 408 " in slow[0].recv(4096)
        finally:
            for connection in slow:
                connection.close()


def test_keys_are_asked_for_and_never_shown(tmp_path: Any, capfd: pytest.CaptureFixture[str]) -> None:
    with served(shadow_engine(), keys=("sesame", "second"), log_requests=True) as server, server.http() as http:
        for headers in ({}, {"Authorization": "Bearer sesam"}, {"Authorization": "sesame"}, {"Authorization": "Basic sesame"}):
            response = http.post(COMPLETIONS, json=GOOD, headers=headers)
            assert response.status_code == 401 and response.headers["www-authenticate"] == "Bearer"
            assert "sesame" not in response.text
        assert http.get("/v1/models").status_code == 401
        assert http.post(COMPLETIONS, json=GOOD, headers={"Authorization": "Bearer sesame"}).status_code == 200
        for path in ("/health", "/ready", "/version", "/metrics"):
            assert http.get(path).status_code == 200
    said = capfd.readouterr()
    (row,) = [json.loads(line) for line in said.out.splitlines() if line.startswith("{")]
    assert row["finish_reasons"] == ["length"] and row["owner"] == "key-0" and "prompts" not in row
    assert "sesame" not in said.out + said.err


def test_other_origins_are_let_in_only_if_named() -> None:
    page = {"Origin": "http://page.test", "Access-Control-Request-Method": "POST"}
    for origins, allowed in (((), None), (("http://page.test",), "http://page.test")):
        with served(shadow_engine(), keys=("k",), allowed_origins=origins) as server, server.http() as http:
            answer = http.options(COMPLETIONS, headers=page)
            assert answer.headers.get("access-control-allow-origin") == allowed
            refused_ = http.post(COMPLETIONS, json=GOOD, headers={"Origin": "http://page.test"})
            assert refused_.headers.get("access-control-allow-origin") == allowed


PLAIN = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["settled", "drafts", "a"])
)
VALUES = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3), max_leaves=6
)


@st.composite
def mutated(draw: st.DrawFn) -> tuple[str, str]:
    """A path, and a good body with some of its fields changed, or added, or taken away, as JSON or nearly."""
    path, good, model = draw(st.sampled_from([(COMPLETIONS, GOOD, CompletionRequest), (CHAT, GOOD_CHAT, ChatRequest)]))
    names = st.sampled_from([*model.model_fields, *Sampling.model_fields]) | st.text(max_size=6)
    changes = draw(st.dictionaries(names, VALUES, min_size=1, max_size=3))
    if draw(st.booleans()):
        changes["dlstep"] = draw(
            st.dictionaries(st.sampled_from(["accept_threshold", "pinned", "canvas", "rule", "max_nfe"]), VALUES)
        )
    body = {name: value for name, value in (good | changes).items() if draw(st.integers(0, 20))}
    text = json.dumps(body)
    if not draw(st.integers(0, 9)):
        cut = draw(st.integers(0, len(text)))
        text = text[:cut] + draw(st.sampled_from(["", "}", "\x00", "\\ud800", "é"])) + text[cut + 1 :]
    return path, text


def check_mutants(shadow: Served, http: httpx2.Client, path: str, text: str) -> None:
    """No mutated body gives a fault of the server, and no error shows what is inside it."""
    response = http.post(path, content=text.encode("utf-8", "replace"), headers={"Content-Type": "application/json"})
    assert response.status_code in (200, 400, 404), (text, response.text)
    if response.status_code != 200:
        error = response.json()["error"]
        assert error["message"] and "Traceback" not in response.text and ".py" not in response.text.replace(text, "")


@given(case=mutated())
def test_no_mutated_body_is_a_fault(shadow: Served, http: httpx2.Client, case: tuple[str, str]) -> None:
    check_mutants(shadow, http, *case)


@pytest.mark.stress
@settings(max_examples=2000)
@given(case=mutated())
def test_none_of_two_thousand_mutated_bodies_is_a_fault(shadow: Served, http: httpx2.Client, case: tuple[str, str]) -> None:
    check_mutants(shadow, http, *case)


def test_the_server_is_well_after_all_of_this(shadow: Served, http: httpx2.Client) -> None:
    shadow.until_idle()
    assert http.post(COMPLETIONS, json=GOOD).status_code == 200
