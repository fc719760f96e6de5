"""Limits on connections, and what the server answers to unusual but valid requests."""

import json
import socket

import pytest

from dlstep.engine.config import EngineConfig
from dlstep.serve.http import server
from dlstep.serve.settings import ServeOptions

from ....helpers.serving import COMPLETIONS, served
from .conftest import GOOD

CLOSED = 15.0  # seconds in which a connection must be closed whose limit is one second, on a busy machine


def raw(url, head=b"", *, small=False):
    """A connection to a server that has sent so much."""
    host, port = url.removeprefix("http://").split(":")
    connection = socket.socket()
    if small:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(CLOSED)
    connection.connect((host, int(port)))
    connection.sendall(head)
    return connection


def request(body=None, path=COMPLETIONS, more=b""):
    """A request as it is sent."""
    if body is None:
        return b"GET " + path.encode() + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n" + more + b"\r\n"
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n"
    return head.encode() + more + b"\r\n" + content


def rest_of(connection):
    """All that a server sends until it closes the connection, which must be soon."""
    found = b""
    try:
        while part := connection.recv(1 << 16):
            found += part
    except ConnectionResetError:
        pass
    return found


def test_models_can_be_retrieved_and_get_routes_take_head():
    with served(served_model_name="team/model") as running, running.http() as http:
        client = running.client()
        assert client.models.retrieve("team/model") == client.models.list().data[0]
        missing = http.get("/v1/models/other")
        assert missing.status_code == 404 and missing.json()["error"]["code"] == "model_not_found"
        app = running.server.config.app
        paths = {route.path for route in app.routes if "GET" in getattr(route, "methods", ())}
        assert len(paths) > 10
        for path in (path for path in paths if "{" not in path):
            answer = http.head(path)
            assert answer.status_code == 200 and not answer.content and http.get(path).content, path


def test_seeds_have_64_bits_with_a_sign():
    with served() as running:
        for seed, status in (((1 << 63) - 1, 200), (-(1 << 63), 200), (1 << 63, 400), (-(1 << 63) - 1, 400)):
            running.post(COMPLETIONS, status=status, seed=seed, **GOOD)
        assert running.choice(seed=(1 << 63) - 1, n=2, temperature=1, **GOOD), "the seeds of further answers may be larger"


def test_replica_processes_are_numbered(monkeypatch):
    def made(starts, options):
        raise ValueError([start.args[2] for start in starts])

    monkeypatch.setattr(server, "Router", made)
    with pytest.raises(ValueError, match=r"\[0, 1, 2\]"):
        server.serve(EngineConfig(), ServeOptions(replicas=3))
