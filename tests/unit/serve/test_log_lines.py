"""Log lines that cannot be written or find no room."""

import fcntl
import logging
import os
import sys
from contextlib import contextmanager
from threading import Timer

import pytest

from dlstep.serve.log_lines import LineHandler

from ...helpers.serving import served
from .http.conftest import GOOD

F_SETPIPE_SZ = 1031


@contextmanager
def stdout_as(descriptor, monkeypatch):
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


@pytest.mark.full
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="writes to /dev/full, which is Linux's")
@pytest.mark.parametrize("what", ["full disk", "closed pipe", "stopped reader"])
def test_a_log_that_cannot_be_written_harms_no_request(what, monkeypatch):
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
        with served(log_requests=True) as server, server.http() as http:
            for _ in range(30):
                server.choice(**GOOD)
            assert http.get("/health").status_code == 200
            if what != "stopped reader":
                server.until(lambda: b"dlstep_log_lines_dropped_total 30.0" in server.router.metrics.text())
    if what != "closed pipe":
        os.close(reader)


def test_lines_that_find_no_room_are_dropped_and_counted(monkeypatch):
    monkeypatch.setattr("dlstep.serve.log_lines.MOST", 10)
    reader, writer = os.pipe()
    fcntl.fcntl(writer, F_SETPIPE_SZ, 4096)
    dropped = []
    lines = LineHandler(writer, lambda: dropped.append(1))
    texts = [f"{number:04} {'x' * 995}" for number in range(100)]
    for text in texts:
        lines.handle(logging.makeLogRecord({"msg": text}))
    assert 100 - 10 - 6 <= (count := len(dropped)) < 100
    found = []

    def read():
        with os.fdopen(reader, "rb") as file:
            found.append(file.read())

    thread = Timer(0.2, read)  # the queue is still full when the handler stops
    thread.start()
    lines.stop(10)
    os.close(writer)
    thread.join(10)
    assert len(dropped) == count, "lines that found room are written before the handler stops"
    assert found[0].decode().splitlines() == texts[: 100 - count], "what is written is whole and in order"
