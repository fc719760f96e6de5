"""Connections that ask for nothing, never finish or never read: they are bounded and closed in time, and delay nobody."""

import fcntl
import json
import logging
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from threading import Thread
from typing import Any

import pytest
from serving import Paced, Served, served, shadow_engine, stalls_of_loop

from dlstep.serve.http import connections
from dlstep.serve.http.guards import hosts_of
from dlstep.serve.log_lines import LineWriter, SeldomFilter
from dlstep.serve.settings import ServeOptions

COMPLETIONS = "/v1/completions"
GOOD = {"prompt": "x", "max_tokens": 4}
F_SETPIPE_SZ = 1031
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
        server.until(lambda: server.front.live == 4)
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


def test_readers_that_never_read_are_cut_off_and_delay_nobody() -> None:
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
            server.until(lambda: server.front.live == 1)
            time.sleep(1.0)  # it is asked twice whether it reads
            engine.driver.gate.set()
            told = rest_of(connection)
            assert b"200 OK" in told and (b"data: [DONE]" if stream else b'"text"') in told
        engine.driver.seconds = 0.05
        gone = raw(server, request({**GOOD, "stream": stream, "max_tokens": 900, "ignore_eos": True}))
        server.until(lambda: server.front.live == 1)
        gone.close()
        begun = engine.driver.runs
        server.until_idle()
        assert engine.driver.runs < begun + 150, "its pages were free long before its end"


@contextmanager
def stdout_as(descriptor: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let stdout be another file."""
    kept = os.dup(1)
    os.dup2(descriptor, 1)
    monkeypatch.setattr(sys, "stdout", os.fdopen(1, "w", closefd=False))
    try:
        yield
    finally:
        monkeypatch.undo()
        os.dup2(kept, 1)
        os.close(kept)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="writes to /dev/full, which is Linux's")
@pytest.mark.parametrize("what", ["full disk", "closed pipe", "stopped reader"])
def test_a_log_that_cannot_be_written_harms_no_request(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    if what == "full disk":
        with open("/dev/full", "wb", buffering=0) as full:
            os.dup2(full.fileno(), writer)
    elif what == "stopped reader":
        fcntl.fcntl(writer, F_SETPIPE_SZ, 4096)
    else:
        os.close(reader)
    with stdout_as(writer, monkeypatch):
        os.close(writer)
        with served(shadow_engine(), log_requests=True) as server, server.http() as http:
            assert {http.post(COMPLETIONS, json=GOOD).status_code for _ in range(30)} == {200}
            assert http.get("/health").status_code == 200
            if what != "stopped reader":
                server.until(lambda: b"dlstep_log_lines_dropped_total 30.0" in server.front.metrics.text())
    if what != "closed pipe":
        os.close(reader)


def test_lines_that_find_no_room_are_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlstep.serve.log_lines.MOST", 10)
    reader, writer = os.pipe()
    fcntl.fcntl(writer, F_SETPIPE_SZ, 4096)
    dropped = list[int]()
    lines = LineWriter(writer, lambda: dropped.append(1))
    texts = [f"{number:04} {'x' * 995}" for number in range(100)]
    for text in texts:
        lines.write(text)
    lines.close(0.1)
    assert 100 - 10 - 6 <= len(dropped) < 100
    found = list[bytes]()

    def read() -> None:
        with os.fdopen(reader, "rb") as file:
            found.append(file.read())

    thread = Thread(target=read)
    thread.start()
    lines.close(10)
    os.close(writer)
    thread.join(10)
    assert found[0].decode().splitlines() == texts[: 100 - len(dropped)], "what is written is whole and in order"


def test_records_of_one_kind_are_written_seldom(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.Logger("test")
    kept = list[str]()
    handler = logging.Handler()
    handler.emit = lambda record: kept.append(record.getMessage())
    handler.addFilter(SeldomFilter(0.2))
    logger.addHandler(handler)
    for round_ in range(2):
        for number in range(1000):
            logger.warning("accept failed: %s", number)
        time.sleep(0.25 * (1 - round_))
    assert kept[0] == "accept failed: 0" and 2 <= len(kept) < 20 and "times more" in kept[1]


HOSTS = ["evil.test", "127.0.0.1.evil.test", "localhost.evil.test", "evil.test:80", "xn--e1afmkfd", "0x7f.1", "127.1"]


def test_names_that_are_not_the_servers_are_refused() -> None:
    with served(shadow_engine(), keys=("k",)) as server, server.http() as http:
        for host in HOSTS:
            for path in ("/health", "/", "/v1/models", COMPLETIONS):
                found = http.request("POST" if path == COMPLETIONS else "GET", path, headers={"Host": host}, json=GOOD)
                error = found.json()["error"]
                assert (found.status_code, error["code"]) == (403, "host_not_allowed") and "--allowed_hosts" in error["message"]
        for host in ("localhost", "LocalHost:8000", "127.0.0.1", "[::1]:8000", "app.localhost", "localhost.", "10.0.0.7"):
            assert http.get("/health", headers={"Host": host}).status_code == 200, host
    with served(shadow_engine(), allowed_hosts=("chat.example.com", "*.example.org")) as server, server.http() as http:
        for host, status in (("chat.example.com", 200), ("a.example.org", 200), ("example.org", 403), ("localhost", 403)):
            assert http.get("/health", headers={"Host": host}).status_code == status, host


@pytest.mark.parametrize(
    ("options", "any_name"),
    [({}, False), ({"host": "::1"}, False), ({"host": "localhost"}, False), ({"host": "127.0.0.7"}, False),
     ({"host": "0.0.0.0"}, True), ({"host": "::"}, True), ({"host": "10.0.0.1"}, True), ({"allowed_hosts": ("*",)}, True),
     ({"host": "0.0.0.0", "allowed_hosts": ("a",)}, False)],
)  # fmt: skip
def test_a_server_for_everybody_is_addressed_by_any_name(options: dict[str, Any], any_name: bool) -> None:
    assert (hosts_of(ServeOptions(**options)) == ()) == any_name


def test_keys_need_not_be_ascii() -> None:
    with served(shadow_engine(), keys=("schlüssel-ключ",)) as server, server.http() as http:
        for key, status in (("schlüssel-ключ", 200), ("schlussel", 401), ("schlüssel-ключ2", 401)):
            headers = {"Authorization": f"Bearer {key}".encode()}
            assert http.get("/v1/models", headers=headers).status_code == status


def test_json_needs_no_content_type_unless_a_browser_sends_it() -> None:
    content = json.dumps(GOOD).encode()
    with served(shadow_engine()) as server, server.http() as http:
        for headers, status in (
            ({}, 200),
            ({"Content-Type": "application/json; charset=utf-8"}, 200),
            ({"Content-Type": "application/vnd.api+json"}, 200),
            ({"Origin": "http://evil.test"}, 400),
            ({"Content-Type": "text/plain"}, 400),
            ({"Content-Type": "application/x-www-form-urlencoded"}, 400),
        ):
            answer = http.post(COMPLETIONS, content=content, headers=headers)
            assert answer.status_code == status, (headers, answer.text)
            if status == 400:
                assert "Content-Type: application/json" in answer.json()["error"]["message"]


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


def test_the_largest_seeds_of_the_core_are_taken() -> None:
    with served(shadow_engine()) as server, server.http() as http:
        for seed, status in (((1 << 64) - 1, 200), (-(1 << 63), 200), (1 << 64, 400), (-(1 << 63) - 1, 400)):
            assert http.post(COMPLETIONS, json=GOOD | {"seed": seed}).status_code == status
        several = http.post(COMPLETIONS, json=GOOD | {"seed": (1 << 64) - 1, "n": 2, "temperature": 1})
        assert several.status_code == 200, "the seed after the largest is 0"
