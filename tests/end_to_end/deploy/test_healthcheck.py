"""The health check of containers kills a server that hangs, and no other."""

import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import psutil
import pytest

from ...helpers.scripts import script


@pytest.fixture(scope="module")
def healthcheck():
    return script("healthcheck", "deploy")


@contextmanager
def answering(status):
    """A server that answers with this status; its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            self.end_headers()

        def log_message(self, format, *args):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def container():
    """An init process and its only child, which stands for the server."""
    with subprocess.Popen(
        [sys.executable, "-c", "import subprocess as s; c = s.Popen(['sleep', '600']); print(c.pid, flush=True); c.wait()"],
        stdout=subprocess.PIPE,
        text=True,
    ) as init:
        child = int(init.stdout.readline())
        try:
            yield init.pid, child
        finally:
            if psutil.pid_exists(child):
                os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("status, code", [(200, 0), (503, 1)])
def test_a_server_that_answers_lives(healthcheck, status, code):
    with container() as (init, child), answering(status) as url:
        assert healthcheck.check(url, 60.0, init) == code
        assert psutil.pid_exists(child)


def test_a_server_that_accepts_and_never_answers_is_killed(healthcheck, capsys):
    with socket.socket() as stopped:
        stopped.bind(("127.0.0.1", 0))
        stopped.listen()
        with container() as (init, child):
            assert healthcheck.check(f"http://127.0.0.1:{stopped.getsockname()[1]}", 0.05, init) == 1
            assert psutil.Process(init).wait(60) == 0, "the container ends"
            assert f"killed [{child}]" in capsys.readouterr().err
