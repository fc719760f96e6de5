"""Engines that stop answering (SIGSTOP, a forward pass that hangs) beside those that are killed: noticed and replaced."""

import json
import os
import random
import re
import signal
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from dlstep.serve import settings
from dlstep.serve.router import replica as replica_module

from ....helpers.serving import served, shadow_engine
from ....helpers.shadow_process import ShadowHost

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGSTOP")

REQUESTS = 8
LATE = 20.0  # seconds: a machine may be busy, but no deadline below is as long
FAULTS = [pytest.param(signal.SIGSTOP, id="stopped"), pytest.param(signal.SIGKILL, id="killed")]
BEAT = 0.25  # seconds between heartbeats
SILENCE, TIMEOUT = 1.0, 1.5  # seconds without one until an engine gets no new requests, and until it is killed
SOON = {"heartbeat_timeout": TIMEOUT}
LONG = {"prompt": [5] * 20, "max_tokens": 100, "ignore_eos": True, "dlstep": {"max_nfe": 1000}}


def asked(number):
    """A request of its own; it takes about 20 forward passes."""
    return {"prompt": [3 + number] * 20, "max_tokens": 40, "ignore_eos": True, "temperature": 0.5}


def hosts_of(count, **options):
    """Engines in processes of their own."""
    return [ShadowHost(shadow_engine(), BEAT, **options) for _ in range(count)]


def ask(server, number, **more):
    """A request's status, and the text of its answer or the code of its error."""
    with server.http() as http:
        response = http.post("/v1/completions", json=asked(number) | more)
    told = response.json()
    return response.status_code, told["error"]["code"] if "error" in told else told["choices"][0]["text"]


def counts(server, name):
    """The values of a metric by its labels."""
    told = server.router.metrics.text().decode()
    found = re.findall(rf"^{re.escape(name)}(\{{.*\}})? (\S+)$", told, re.MULTILINE)
    return Counter({labels: int(float(value)) for labels, value in found})


def until_states(server, *states):
    """Wait until the replicas are in these phases."""
    server.until(lambda: tuple(replica.phase for replica in server.router.replicas) == states)


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    """Notice missing heartbeats sooner than options allow."""
    monkeypatch.setattr(replica_module, "SILENCE", SILENCE)
    monkeypatch.setattr(settings, "check_ranges", lambda _: None)


@contextmanager
def one_engine(options, **given):
    """An engine in a process of its own, and its server with these options."""
    (host,) = hosts_of(1, **given)
    with served(hosts=[host], **options) as server:
        yield host, server


@pytest.fixture
def hangs(tmp_path):
    """A file; while it exists, forward passes hang."""
    return tmp_path / "hangs"


def warm(server):
    """Let the engine answer its first request, which takes seconds: it imports torch for the constraints of requests."""
    while ask(server, 0, max_tokens=4)[0] != 200:
        pass
    server.until_idle()


def all_sent(server, threads, hangs):
    """Requests that the engines have begun and cannot end before the file is gone, however slow the machine is."""
    hangs.touch()
    under_way = [threads.submit(ask, server, number) for number in range(REQUESTS)]
    server.until(lambda: sum(len(replica.sent) for replica in server.router.replicas) == REQUESTS)
    server.until(lambda: server.load.running > 0)
    return under_way


@pytest.mark.full
@pytest.mark.parametrize("fault", FAULTS)
def test_requests_of_the_only_engine_end_with_an_error_and_the_server_is_ready_again(fault, tmp_path, hangs):
    loads, options = tmp_path / "loads", SOON | {"request_timeout": 5.0}
    with one_engine(options, loads=loads, hangs=hangs) as (host, server), ThreadPoolExecutor(REQUESTS) as threads:
        warm(server)
        under_way = all_sent(server, threads, hangs)
        loads.touch()
        begin = time.monotonic()
        os.kill(host.pid, fault)
        # On a slow machine a request may reach `request_timeout` before its engine is killed.
        assert {each.result() for each in under_way} <= {(503, "engine_died"), (503, "engine_timeout")}
        assert time.monotonic() - begin < LATE
        server.until(lambda: server.router.deaths == 1)
        hangs.unlink()
        with server.http() as http:
            told = http.get("/ready").json()
            loads.unlink()
            server.until(lambda: http.get("/ready").status_code == 200)
        reason = "sent no heartbeat for 1.5 seconds and was killed" if fault == signal.SIGSTOP else "was killed by SIGKILL"
        assert told["status"] == "restarting" and reason in told["reason"] and reason in told["replicas"][0]["last_death"]
        warm(server)
        assert counts(server, "dlstep_engine_timeouts_total")['{deadline="heartbeat"}'] == (fault == signal.SIGSTOP)
        server.until_idle()


@pytest.mark.full
@pytest.mark.parametrize("fault", FAULTS)
def test_another_engine_answers_unsent_requests_once(fault, hangs):
    hosts = hosts_of(2, hangs=hangs)
    with served(hosts=hosts, **SOON) as server, ThreadPoolExecutor(REQUESTS) as threads:
        until_states(server, "ready", "ready")
        expected = [(200, ask(server, number)[1]) for number in range(REQUESTS)]
        server.until_idle()
        before = counts(server, "vllm:request_success_total")
        under_way = all_sent(server, threads, hangs)
        os.kill(hosts[0].pid, fault)
        hangs.unlink()
        assert [each.result() for each in under_way] == expected
        until_states(server, "ready", "ready")
        server.until_idle()
        ended = counts(server, "vllm:request_success_total") - before
        assert ended == Counter({'{finished_reason="length"}': REQUESTS})
        assert [replica.deaths for replica in server.router.replicas] == [1, 0]


@pytest.mark.full
def test_an_engine_that_goes_on_is_ready_again_and_late_reports_are_ignored(hangs):
    with one_engine({"request_timeout": 4.0}, hangs=hangs) as (host, server), ThreadPoolExecutor(REQUESTS + 1) as threads:
        (replica,) = server.router.replicas
        warm(server)
        before = counts(server, "vllm:request_success_total").total()
        under_way = all_sent(server, threads, hangs)
        os.kill(host.pid, signal.SIGSTOP)
        found = {each.result() for each in under_way}
        assert {status for status, _ in found} <= {200, 503}, found
        assert not server.router.live and len(replica.abandoned) == REQUESTS
        until_states(server, "silent")
        with server.http() as http:
            assert http.get("/ready").status_code == 503
        waits = threads.submit(ask, server, 1, max_tokens=4)
        server.until(lambda: server.router.live == 1)
        hangs.unlink()
        os.kill(host.pid, signal.SIGCONT)
        until_states(server, "ready")
        waits.result()
        server.until(lambda: not replica.abandoned)
        assert ask(server, 2, max_tokens=4)[0] == 200
        assert not server.router.deaths and host.starts == 1
        assert counts(server, "vllm:request_success_total").total() - before == REQUESTS + 2
        server.until_idle()


def until_begun(server, host):
    """Wait until an engine has sent its first heartbeat: it has imported what it needs, and loads."""
    server.until(lambda: host.starts > 0 and host.worker._progress >= 0)


@pytest.mark.full
@pytest.mark.parametrize("fault", FAULTS)
def test_an_engine_that_stops_while_it_loads_is_started_again(fault, tmp_path, monkeypatch):
    loads = tmp_path / "loads"
    loads.touch()
    first, second = hosts_of(1)[0], hosts_of(1, loads=loads)[0]
    with served(hosts=[first, second], **SOON) as server:
        until_begun(server, second)
        monkeypatch.setattr(replica_module, "LOADING", TIMEOUT)
        os.kill(second.pid, fault)
        assert ask(server, 1)[0] == 200
        server.until(lambda: server.router.deaths == 1)
        monkeypatch.undo()
        loads.unlink()
        until_states(server, "ready", "ready")
        assert second.starts == 2
        assert counts(server, "dlstep_engine_timeouts_total")['{deadline="heartbeat"}'] == (fault == signal.SIGSTOP)


@pytest.mark.full
def test_a_forward_pass_that_hangs_ends_its_requests_and_the_engine(hangs):
    given = {"seconds": 0.02, "hangs": hangs}
    with one_engine({"engine_timeout": 6.0}, **given) as (_, server), server.http() as http, ThreadPoolExecutor(1) as threads:
        hangs.touch()
        answer = threads.submit(http.post, "/v1/completions", json=LONG | {"stream": True})
        server.until(lambda: server.router.deaths == 1)
        hangs.unlink()
        assert "finished no forward pass for 6 seconds and was killed" in answer.result().text
        until_states(server, "ready")
        assert ask(server, 1)[0] == 200
        assert counts(server, "dlstep_engine_timeouts_total")['{deadline="step"}'] == 1


@pytest.mark.full
def test_shutdown_ends_although_the_engine_is_stopped(hangs):
    with one_engine({"drain_seconds": 0.5}, hangs=hangs) as (host, server), ThreadPoolExecutor(REQUESTS) as threads:
        under_way = all_sent(server, threads, hangs)
        os.kill(host.pid, signal.SIGSTOP)
        server.server.ask_to_end()
        server.thread.join(LATE)
        assert not server.thread.is_alive()
        for each in under_way:
            status, _ = each.result()
            assert status in (200, 503)
    assert not host.worker.alive


@pytest.mark.full
def test_a_pause_of_the_server_is_not_the_engines():
    """The event loop stands for longer than an engine may be silent, as when the server is stopped, or the machine sleeps."""
    with one_engine(SOON) as (_, server):
        server.server._loop.call_soon_threadsafe(time.sleep, 2 * TIMEOUT)
        assert ask(server, 1)[0] == 200
        time.sleep(2 * BEAT)
        assert not server.router.deaths and server.router.phase == "ready"


def streamed(server, number):
    """The status of a streamed request, and the text of its whole answer, or as much as came before an error or an abort."""
    with server.http() as http:
        response = http.post("/v1/completions", json=asked(number) | {"stream": True})
    if response.status_code != 200:
        return response.status_code, response.json()["error"]["code"]
    found = [json.loads(line.removeprefix("data: ")) for line in response.text.splitlines() if line.startswith("data: {")]
    return 200, "".join(choice["text"] for each in found for choice in each.get("choices", ()))


def random_faults(seconds, clients, report):
    """Clients ask two engines that are stopped, killed and continued at random: every answer is right or an honest error.

    Half of them stream: what came before an error is the beginning of the right answer, so nothing was answered twice.
    """
    draws, hosts = random.Random(7), hosts_of(2, seconds=0.01)
    options = SOON | {"max_restarts": 1000, "request_timeout": 8.0, "max_queue": 16}
    with served(hosts=hosts_of(1)) as server:  # without a timeout, which ends answers early on a busy machine
        until_states(server, "ready")
        expected = [(200, ask(server, number)[1]) for number in range(clients)]
    with served(hosts=hosts, **options) as server, ThreadPoolExecutor(clients) as threads:
        until_states(server, "ready", "ready")
        end = time.monotonic() + seconds

        def client(number):
            found = Counter()
            while time.monotonic() < end:
                answer = streamed(server, number) if number % 2 else ask(server, number)
                if answer == expected[number]:
                    answer = 200, "right"
                found[answer] += 1
                if answer[0] != 200:
                    time.sleep(0.1)
            return found

        asking = [threads.submit(client, number) for number in range(clients)]
        faults = Counter()
        while time.monotonic() < end:
            host = draws.choice(hosts)
            fault = draws.choice([signal.SIGSTOP, signal.SIGKILL, signal.SIGCONT])
            if host.worker.alive:
                os.kill(host.pid, fault)
                faults[fault.name] += 1
            time.sleep(draws.uniform(0.5, 3.0))
        found = sum((each.result() for each in asking), Counter())
        for host in hosts:
            if host.worker.alive:
                os.kill(host.pid, signal.SIGCONT)
        until_states(server, "ready", "ready")
        server.until_idle()
        assert ask(server, 1) == expected[1]
        # An answer may also end early by `request_timeout` with what is settled; no other text is ever an answer.
        wrong = {answer for answer in found if answer[0] == 200 and answer[1] != "right" and not early(answer[1], expected)}
        assert not wrong and {status for status, _ in found} <= {200, 429, 503}, found
        refused = found[503, "not_ready"] + found[429, "queue_full"]  # these were never accepted
        assert counts(server, "vllm:request_success_total").total() == 1 + found.total() - refused
        report(
            f"{seconds:g} s of {dict(faults)} on two engines, {clients} clients: {found[200, 'right']} answers whole, "
            f"{found.total() - found[200, 'right'] - refused} ended early, {refused} refused"
        )


def early(text, expected):
    """Whether a text is the beginning of a right one."""
    return any(whole.startswith(text) for _, whole in expected)


@pytest.mark.full
@pytest.mark.parametrize("seconds, clients", [(8.0, 8), pytest.param(60.0, 48, marks=pytest.mark.stress)])
def test_random_stops_and_kills_make_no_answer_wrong_and_none_twice(seconds, clients, report):
    random_faults(seconds, clients, report)
