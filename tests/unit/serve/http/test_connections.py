"""Connections whose clients stop are closed, wherever they stop; slow clients and long answers are not cut."""

import resource
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import pytest

from dlstep.serve.http.connections import RESERVED, connection_limit
from dlstep.serve.settings import ServeOptions

from ....helpers.serving import served, shadow_engine
from .conftest import GOOD
from .test_server import CLOSED, raw, request, rest_of

IDLE = 1.0  # seconds
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
HALF = HEAD + b"Content-Le"
HEALTH = request(path="/health")
LARGE = request(path="/openapi.json")
STALLS = {
    "nothing": b"",
    "half a request line": b"POST /v1/comp",
    "half a header": HALF,
    "no body": HEAD + b"Content-Length: 50\r\n\r\n",
    "half a body": request(GOOD)[:-3],
    "half a chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\n20\r\n{",
    "no body after 100 Continue": HEAD + b"Content-Length: 50\r\nExpect: 100-continue\r\n\r\n",
    "half a body that is not read": request(GOOD, "/nowhere")[:-3],
    "no second request": HEALTH,
    "half a second request": HEALTH + HALF,
    "half a second body": HEALTH + request(GOOD)[:-3],
    "reads no answer": LARGE * 20,
    "reads no answer before half a request": LARGE * 20 + HALF,
}


def slow_upload(server):
    """Send a body in pieces for longer than a connection may be idle."""
    sent = request({"prompt": "x"}, "/tokenize")
    with raw(server.url, sent[:-12]) as connection:
        for place in range(len(sent) - 12, len(sent)):
            time.sleep(IDLE / 6)
            connection.sendall(sent[place : place + 1])
        return connection.recv(1 << 12).startswith(b"HTTP/1.1 200 ")


def slow_reader(server):
    """Read answers in pieces for longer than a connection may be idle."""
    with raw(server.url, LARGE * 9 + LARGE.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), small=True) as connection:
        found = b""
        for _ in range(12):
            time.sleep(IDLE / 6)
            for _ in range(4):  # 6 kB each: Linux tells the server of progress only once a third of its buffer is read
                found += connection.recv(1 << 16)
        return (found + rest_of(connection)).count(b"200 OK") == 10


def long_stream(server):
    """Read a stream with pauses that are longer than a connection may be idle."""
    with server.http() as http:
        return http.post("/v1/completions", json={"prompt": "x", "max_tokens": 1, "stream": True}).text.endswith("[DONE]\n\n")


def test_clients_that_stop_anywhere_are_closed_and_no_other():
    with (
        served(shadow_engine(1.2 * IDLE), idle_timeout=IDLE) as server,
        ExitStack() as stack,
        ThreadPoolExecutor(4) as threads,
        server.http() as http,
    ):
        unhurt = [threads.submit(each, server) for each in (slow_upload, slow_reader, long_stream, long_stream)]
        stalled = {name: stack.enter_context(raw(server.url, sent, small=True)) for name, sent in STALLS.items()}
        stalled["drips a header"] = drips = stack.enter_context(raw(server.url, HALF))
        end = time.monotonic() + CLOSED
        while any(_is_open(server, connection.getsockname()) for connection in stalled.values()):
            assert time.monotonic() < end, [name for name, each in stalled.items() if _is_open(server, each.getsockname())]
            with suppress(OSError):
                drips.send(b"n")
            assert http.get("/health").status_code == 200
            time.sleep(IDLE / 10)
        assert [each.result() for each in unhurt] == [True] * 4


def _is_open(server, client):
    return client in [connection.client for connection in list(server.server.server_state.connections)]


def test_new_connections_take_the_place_of_idle_ones_and_of_no_other():
    """Eight may be open: thirty idle ones keep nobody out, and while eight requests run, health checks are answered."""
    engine = shadow_engine()
    stream, close = request(GOOD | {"stream": True}), b"Connection: close\r\n"
    with served(engine, max_connections=8) as server, ExitStack() as stack:
        for number in range(30):
            stack.enter_context(raw(server.url, HALF[:number]))
            assert answer_to(server, HEALTH) == answer_to(server, stream) == 200
        engine.driver.gate.clear()
        running = [stack.enter_context(raw(server.url, stream.replace(b"Host", close + b"Host", 1))) for _ in range(8)]
        server.until(lambda: server.router.live == 8)
        for _ in range(8):
            stack.enter_context(raw(server.url))
            assert (answer_to(server, HEALTH), answer_to(server, request(path="/v1/models"))) == (200, 503)
        engine.driver.gate.set()
        assert all(rest_of(each).endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n") for each in running)
        assert answer_to(server, request(path="/v1/models")) == 200


def answer_to(server, sent):
    """The status of the answer to a request on a new connection."""
    with raw(server.url, sent) as connection:
        head = connection.recv(1 << 12).decode()
    status = int(head.split()[1])
    assert ("retry-after:" in head.lower()) == (status == 503)
    return status


@pytest.fixture
def limits(monkeypatch):
    """The limits on descriptors, of which the last counts."""
    found = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: found[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, given: found.append(given))
    yield found


@pytest.mark.parametrize(
    "soft, hard, expected",
    [
        (1024, 1 << 20, 1000),
        (256, sys.maxsize, 1000),
        (1024, 1024, 1024 - RESERVED),
        (64, 64, 1),
    ],
)
def test_descriptors_are_reserved(soft, hard, expected, limits):
    limits.append((soft, hard))
    assert connection_limit(ServeOptions()) == expected
    assert limits[-1][1] == hard and limits[-1][0] <= max(soft, 1000 + RESERVED)
