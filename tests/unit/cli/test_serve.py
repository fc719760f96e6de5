"""`dlstep serve` as it is started: two processes, signals, a killed engine, and wrong options."""

# Pipes that were asked for are there.
# pyright: reportOptionalMemberAccess=false

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx2
import psutil
import pytest

from dlstep.serve.settings import ServeOptions

from ...helpers.servers import nothing_goes_wrong_unseen  # noqa: F401
from ...helpers.serving import served, shadow_engine
from ...helpers.waiting import until

pytestmark = pytest.mark.full

DLSTEP = [sys.executable, "-c", "from dlstep.cli import main; raise SystemExit(main())"]
START = 120.0  # seconds; torch and transformers are loaded on a busy machine
NOTICED = 20.0  # seconds until a request fails after its engine was killed on a busy machine; it takes a tenth of one
LONG = {"prompt": "Max has 53 shells.", "max_tokens": 400, "ignore_eos": True}


class Command:
    """A running `dlstep serve`."""

    def __init__(self, process, url, log):
        self.process, self.url, self.log = process, url, log
        self.http = httpx2.Client(base_url=url, timeout=60)

    def until_ready(self):
        """Wait until the model is loaded."""
        until(lambda: self.http.get("/ready").status_code == 200, START, self.log.read_text)

    def until_metric(self, line, *, there):
        """Wait until a line of `/metrics` is there, or is not."""
        until(lambda: (line in self.http.get("/metrics").text) == there, 60, self.log.read_text)

    @property
    def engine(self):
        """The engine's process."""
        (engine,) = engines_of(self.process.pid)
        return engine

    def loaded(self, pid):
        """Whether a process has loaded torch."""
        return "libtorch" in Path(f"/proc/{pid}/maps").read_text()


def engines_of(pid):
    """The engines that a server has started."""
    return [child for child in psutil.Process(pid).children() if "spawn_main" in " ".join(child.cmdline())]


@contextmanager
def command(folder, line):
    """A server on a free port, ready to answer."""
    log = folder / "stderr"
    with log.open("w") as stderr, (folder / "stdout").open("w") as stdout:
        process = subprocess.Popen([*DLSTEP, *shlex.split(f"serve {line} --port 0")], stdout=stdout, stderr=stderr, text=True)
        try:
            until(lambda: "listening on" in log.read_text() or process.poll() is not None, START, log.read_text)
            running = Command(process, re.findall(r"listening on (http://\S+);", log.read_text())[0], log)
            running.until_ready()
            yield running
            running.http.close()
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()


def until_gone(process, seconds):
    """Wait for the end of a process."""
    ended = lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE  # noqa: E731
    until(ended, seconds, lambda: "an orphan is left")


def check_requests_of_a_killed_process(server, process, report, deadline):
    """Requests under way fail before the deadline, in seconds."""

    def failed(stream):
        with server.http.stream("POST", "/v1/completions", json={**LONG, "stream": stream, "n": 4}) as response:
            text = "".join(response.iter_text())
        return time.monotonic(), text

    with ThreadPoolExecutor(2) as threads:
        under_way = [threads.submit(failed, stream) for stream in (False, True)]
        server.until_metric("vllm:num_requests_running 8.0", there=True)
        killed = time.monotonic()
        os.kill(process.pid, signal.SIGKILL)
        for each in under_way:
            failed_at, text = each.result()
            report(f"noticed a killed process after {failed_at - killed:.2f} s")
            assert failed_at - killed < deadline and "engine_died" in text


def check_a_killed_engine(server, report):
    """Those whose engine is killed fail at once; then it is started again."""
    first = server.engine
    check_requests_of_a_killed_process(server, first, report, NOTICED)
    ready = server.http.get("/ready")
    assert ready.status_code == 503 and ready.json()["status"] == "restarting"
    assert server.http.post("/v1/completions", json=LONG).status_code == 503
    server.until_ready()
    assert server.http.get("/ready").json()["engine_deaths"] == 1
    assert server.http.post("/v1/completions", json={**LONG, "max_tokens": 8}).status_code == 200
    assert server.engine.pid != first.pid


def check_sigterm(server):
    """Answers under way end well, and then both processes do; returns how many answers that were."""
    engine = server.engine

    def answer(number):
        return server.http.post("/v1/completions", json={**LONG, "stream": number % 2 == 0})

    with ThreadPoolExecutor(12) as threads:
        under_way = [threads.submit(answer, number) for number in range(12)]
        server.until_metric("vllm:num_requests_running 0.0", there=False)
        server.process.send_signal(signal.SIGTERM)
        found = [each.result() for each in under_way]
    ended = [response for response in found if response.status_code == 200]
    assert all(response.json()["error"]["code"] == "not_ready" for response in found if response.status_code != 200)
    assert ended and all('"finish_reason":"length"' in response.text for response in ended)
    assert server.process.wait(60) == 0
    until_gone(engine, 20)
    return len(ended)


def test_a_rule_that_never_accepts_a_request_ends_the_server_with_its_line(tmp_path):
    rule = Path(__file__).parents[1] / "batch" / "endless_rule.py"
    with command(tmp_path, f"--rule {rule} --engine_timeout 10") as server:
        engine = server.engine
        assert server.http.post("/v1/completions", json={"prompt": "Max", "max_tokens": 4}).status_code == 200
        with pytest.raises(httpx2.RemoteProtocolError):
            server.http.post("/v1/completions", json={"prompt": "Max", "dlstep": {"endless_check": True}})
        assert server.process.wait(20) == 1 and "in refusal" in server.log.read_text()
        until_gone(engine, 20)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="looks at what is loaded under /proc, which is Linux's")
def test_two_processes_live_and_die_as_they_should(tmp_path, report):
    with command(tmp_path, "tiny-bd --config 'max_queue: 100' --max_restarts 1") as server:
        assert not server.loaded(server.process.pid) and server.loaded(server.engine.pid)
        check_a_killed_engine(server, report)
        ended = check_sigterm(server)
    rows = [json.loads(line) for line in (tmp_path / "stdout").read_text().splitlines()]
    reasons = [reason for row in rows for reason in row["finish_reasons"]]
    assert [reason for reason in reasons if reason != "abort"] == ["error"] * 8 + ["length"] * (1 + ended)


@pytest.fixture
def hangups():
    """Let child processes get SIGHUP, which `nohup make full` ignores."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hangups")
@pytest.mark.parametrize(
    "signals",
    [[signal.SIGKILL], [signal.SIGINT], [signal.SIGHUP], [signal.SIGINT, signal.SIGINT], [signal.SIGINT, signal.SIGTERM]],
)
def test_an_engine_never_outlives_its_server_not_even_while_it_loads(signals):
    # The second signal comes too late where the server has ended by then; two of a kind may also arrive as one. Two that are
    # sent at nearly the same time may be handled in either order, so that each of them can be the second.
    ended_at_once = {128 + number for number in signals} if len(signals) > 1 else set()
    expected = {-signal.SIGKILL} if signals == [signal.SIGKILL] else {0, *ended_at_once}
    with subprocess.Popen([*DLSTEP, "serve", "--port", "0"], stderr=subprocess.PIPE, text=True) as process:
        try:
            assert "listening" in process.stderr.readline()
            until(lambda: engines_of(process.pid), START)
            (engine,) = engines_of(process.pid)
            for number in signals:
                process.send_signal(number)
            assert process.wait(START) in expected
            assert "Traceback" not in process.stderr.read()
            until_gone(engine, START)
        finally:
            process.kill()


def test_a_second_signal_ends_the_server_at_once(monkeypatch):
    """It waits neither for answers under way nor for an engine that is busy."""
    engine, codes = shadow_engine(), []
    monkeypatch.setattr(os, "_exit", codes.append)
    with served(engine, drain_seconds=60.0) as server, server.http() as http, ThreadPoolExecutor(1) as threads:
        engine.driver.gate.clear()
        answer = threads.submit(http.post, "/v1/completions", json=LONG | {"max_tokens": 8})
        server.until(lambda: server.router.live == 1)
        for number, expected in ((signal.SIGINT, []), (signal.SIGTERM, [128 + signal.SIGTERM])):
            server.server.handle_exit(number, None)
            assert codes == expected
        engine.driver.gate.set()
        assert answer.result().status_code == 200


def test_the_http_process_needs_no_torch():
    hidden = "import sys; sys.modules |= dict.fromkeys(('torch', 'triton'))"
    code = f"{hidden}; import dlstep.serve.http.server, dlstep.text.detokenize"
    subprocess.run([sys.executable, "-c", code], timeout=START, check=True)


SPACED = "a key contains a space: write one key per line, and comments in lines that begin with #"


@pytest.mark.parametrize(
    "variable, file, expected",
    [
        (None, None, ()), (" secret \n", None, ("secret",)), ("#1", None, ("#1",)),
        ("", None, "DLSTEP_API_KEY contains no key: set it to a key, or unset it"), (" \n", None, "contains no key"),
        ("two words", None, SPACED),
        ("secret", "one\n\n two \none\n", ("one", "two")),
        (None, "\ufeff# of the team\r\none\r\n  # old\r\n", ("one",)), (None, "\ufeffone#1", ("one#1",)),
        (None, "\ufeff\n# one\n", "keys contains no key: write one key per line"), (None, "one # of Ann", SPACED),
    ],
)  # fmt: skip
def test_keys_are_those_that_are_written(variable, file, expected, tmp_path, monkeypatch):
    (path := tmp_path / "keys").write_text(file or "")
    held = None if file is None else str(path)
    kinds = {
        "DLSTEP_API_KEY": ServeOptions(api_key_file=held).api_keys,
        "DLSTEP_ADMIN_KEY": ServeOptions(admin_key_file=held).admin_keys,
    }
    for name, keys in kinds.items():
        monkeypatch.delenv(name, raising=False)
        if variable is not None:
            monkeypatch.setenv(name, variable)
        if isinstance(expected, tuple):
            assert keys() == expected
            continue
        with pytest.raises(ValueError, match=re.escape(expected.replace("DLSTEP_API_KEY", name))):
            keys()
