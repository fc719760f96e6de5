"""Connections that ask for nothing, never finish or never read: they are bounded and closed in time, and delay no other."""

import json
import os
import socket
import time
from contextlib import ExitStack
from typing import Any

import pytest

from dlstep.serve.http import connections

from ....helpers.serving import Paced, Served, served, shadow_engine, stalls_of_loop

COMPLETIONS = "/v1/completions"
GOOD = {"prompt": "x", "max_tokens": 4}
CLOSED = 15.0  # seconds in which a connection must be closed whose limit is one second, on a busy machine


def raw(server: Served, head: bytes = b"", *, small: bool = False) -> socket.socket:
    """A connection to a server that has sent so much."""
    host, port = server.url.removeprefix("http://").split(":")
    connection = socket.socket()
    if small:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(CLOSED)
    connection.connect((host, int(port)))
    connection.sendall(head)
    return connection


def request(body: dict[str, Any] | None = None, path: str = COMPLETIONS, more: bytes = b"") -> bytes:
    """A request as it is sent."""
    if body is None:
        return b"GET " + path.encode() + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n" + more + b"\r\n"
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n"
    return head.encode() + more + b"\r\n" + content


def rest_of(connection: socket.socket) -> bytes:
    """All that a server sends until it closes the connection, which must be soon."""
    found = b""
    try:
        while part := connection.recv(1 << 16):
            found += part
    except ConnectionResetError:
        pass
    return found


def test_idle_connections_and_half_sent_headers_are_closed() -> None:
    engine = shadow_engine()
    assert isinstance(engine.driver, Paced)
    half = b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
    with served(engine, idle_timeout=1.0) as server, ExitStack() as stack:
        waiting = stack.enter_context(raw(server, request(GOOD)))
        engine.driver.gate.clear()
        begun = [b"", b"G", half, request(path="/health"), request(path="/health") + half]
        silent = [stack.enter_context(raw(server, each)) for each in begun]
        told = [rest_of(each) for each in silent]
        assert [each.count(b"200 OK") for each in told] == [0, 0, 0, 1, 1]
        engine.driver.gate.set()
        assert b"200 OK" in waiting.recv(1 << 16), "one that waits for its answer is not idle"


def test_too_many_connections_take_the_place_of_the_oldest_silent_ones() -> None:
    engine = shadow_engine()
    assert isinstance(engine.driver, Paced)
    with served(engine, max_connections=8) as server, ExitStack() as stack:
        engine.driver.gate.clear()
        working = [stack.enter_context(raw(server, request(GOOD))) for _ in range(4)]
        server.until(lambda: server.router.live == 4)
        for _ in range(5):
            _idle = [stack.enter_context(raw(server)) for _ in range(20)]
            with raw(server, request(path="/health")) as healthy:
                assert b"200 OK" in healthy.recv(4096)
            assert len(server.server.server_state.connections) <= 8
        engine.driver.gate.set()
        assert all(b"200 OK" in each.recv(1 << 16) for each in working), "no idle connection ends one at work"


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="counts open files under /proc, which is Linux's")
def test_few_file_descriptors_bound_the_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = len(os.listdir("/proc/self/fd")) + connections.RESERVED + 10
    monkeypatch.setattr(connections.resource, "getrlimit", lambda _: (limit, limit))
    with served(shadow_engine()) as server, ExitStack() as stack:
        config: Any = server.server.config
        assert connections.FEWEST <= config.max_connections <= 12
        _idle = [stack.enter_context(raw(server)) for _ in range(30)]
        with raw(server, request(path="/health")) as healthy:
            assert b"200 OK" in healthy.recv(4096)


def test_readers_that_never_read_are_closed_and_delay_no_other() -> None:
    asked = request(path="/openapi.json") * 200
    stream = request({**GOOD, "max_tokens": 100, "ignore_eos": True, "stream": True, "dlstep": {"stream": "steps"}})
    with (
        stalls_of_loop() as stalls,
        served(shadow_engine(), idle_timeout=1.0) as server,
        server.http() as http,
        ExitStack() as stack,
    ):
        for number in range(16):
            stack.enter_context(raw(server, asked if number % 2 else stream * 8, small=True))
        open_ = server.server.server_state.connections
        most = dict[object, int]()

        def unread() -> int:
            found = {each: each.transport.get_write_buffer_size() for each in list(open_)}
            most.update({each: max(size, most.get(each, 0)) for each, size in found.items() if size})
            return sum(found.values())

        server.until(lambda: unread() > 0 and len(most) >= 4)
        assert max(most.values()) < 1 << 18
        assert http.post(COMPLETIONS, json=GOOD).status_code == 200
        server.until(lambda: not unread(), CLOSED)
        server.until_idle()
    assert stalls.longest < 0.2, stalls


def test_the_rest_of_an_endless_body_is_not_read() -> None:
    sent = 0
    with served(shadow_engine(), max_body_bytes=1000) as server:
        head = b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
        with raw(server, head) as connection:
            end = time.monotonic() + CLOSED
            with pytest.raises(OSError):
                while time.monotonic() < end:
                    sent += connection.send(b"4000\r\n" + b"x" * 0x4000 + b"\r\n")
                    time.sleep(0.01)
            assert sent > 0 and time.monotonic() < end
        with raw(server, head + b"4000\r\n" + b"x" * 0x4000 + b"\r\n") as connection:
            assert b" 413 " in connection.recv(4096)


def test_chunks_of_one_byte_do_not_stall_the_event_loop() -> None:
    content = json.dumps({**GOOD, "user": "x" * 100_000}).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in content) + b"0\r\n\r\n"
    with stalls_of_loop() as stalls, served(shadow_engine()) as server, raw(server, head) as connection:
        connection.sendall(chunks)
        assert b"200 OK" in connection.recv(4096)
    assert stalls.longest < 0.2, stalls


@pytest.mark.parametrize("stream", [False, True])
def test_half_closed_clients_get_their_answer_and_gone_ones_are_noticed(stream: bool) -> None:
    engine = shadow_engine(max_model_len=1024, num_pages=1000)
    assert isinstance(engine.driver, Paced)
    with served(engine, ping_seconds=60.0) as server:
        engine.driver.gate.clear()
        with raw(server, request({**GOOD, "stream": stream})) as connection:
            connection.shutdown(socket.SHUT_WR)
            server.until(lambda: server.router.live == 1)
            time.sleep(1.0)  # it is asked twice whether it reads
            engine.driver.gate.set()
            told = rest_of(connection)
            assert b"200 OK" in told and (b"data: [DONE]" if stream else b'"text"') in told
        engine.driver.seconds = 0.05
        gone = raw(server, request({**GOOD, "stream": stream, "max_tokens": 900, "ignore_eos": True}))
        server.until(lambda: server.router.live == 1)
        gone.close()
        begun = engine.driver.runs
        server.until_idle()
        assert engine.driver.runs < begun + 150, "its pages were free long before its end"


def test_an_upgrade_to_a_websocket_is_answered_over_http_without_advice_to_install(caplog: pytest.LogCaptureFixture) -> None:
    upgrade = b"Connection: upgrade, close\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\n"
    with served(shadow_engine()) as server, raw(server, request(path="/health", more=upgrade)) as client:
        assert rest_of(client).startswith(b"HTTP/1.1 200 ")
    assert not caplog.records


def test_models_can_be_retrieved_and_get_routes_take_head() -> None:
    with served(shadow_engine(), served_model_name="team/model") as server, server.http() as http:
        client = server.client()
        assert client.models.retrieve("team/model") == client.models.list().data[0]
        missing = http.get("/v1/models/other")
        assert missing.status_code == 404 and missing.json()["error"]["code"] == "model_not_found"
        app: Any = server.server.config.app
        paths = {method: {route.path for route in app.routes if method in route.methods} for method in ("GET", "HEAD")}
        assert paths["GET"] == paths["HEAD"] and len(paths["GET"]) > 10
        for path in (path for path in paths["GET"] if "{" not in path):
            answer = http.head(path)
            assert answer.status_code == 200 and not answer.content and http.get(path).content, path


def test_seeds_have_64_bits_with_a_sign() -> None:
    with served(shadow_engine()) as server, server.http() as http:
        for seed, status in (((1 << 63) - 1, 200), (-(1 << 63), 200), (1 << 63, 400), (-(1 << 63) - 1, 400)):
            assert http.post(COMPLETIONS, json=GOOD | {"seed": seed}).status_code == status
        several = http.post(COMPLETIONS, json=GOOD | {"seed": (1 << 63) - 1, "n": 2, "temperature": 1})
        assert several.status_code == 200, "the seeds of further answers may be larger"
