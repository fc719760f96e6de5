"""Engines that die: which requests fail or wait, when the server gives up, and deadlines."""

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from dlstep.serve.messages import EngineLoad, StepReport, Work
from dlstep.serve.router import replica
from dlstep.serve.router.replica import AHEAD, Replica, disconnect
from dlstep.serve.settings import ServeOptions

from ....helpers.serving import COMPLETIONS, DeafHost, served, shadow_engine


def outcome(http, number):
    """The status of a request and the code of its error."""
    response = http.post(COMPLETIONS, json={"prompt": f"{number}", "max_tokens": 8})
    return response.status_code, response.json().get("error", {}).get("code")


@pytest.mark.parametrize("dies", [True, pytest.param(False, marks=pytest.mark.full)], ids=["dies", "falls silent"])
def test_sent_requests_fail_and_waiting_ones_are_answered(dies):
    engine = shadow_engine(max_num_reqs=1)
    host, sent = DeafHost(engine), 1 + AHEAD
    with served(engine, host=host, heartbeat_timeout=3.0) as server, server.http() as http, ThreadPoolExecutor(16) as threads:
        under_way = [threads.submit(outcome, http, number) for number in range(sent + 4)]
        server.until(lambda: server.router.live == sent + 4)
        host.die() if dies else host.fall_silent()
        found = sorted(each.result() for each in under_way)
        assert found == [(200, None)] * 4 + [(503, "engine_died")] * sent
        assert server.router.deaths == 1 and server.router.phase == "ready"
        server.until_idle()


def test_the_server_gives_up_after_so_many_restarts(monkeypatch):
    def disconnect_when_silent(connection):
        """Wait until the router marks the dead engine as silent, so that it gets no requests while its process ends."""
        server.until(lambda: server.router.phase == "silent")
        disconnect(connection)

    monkeypatch.setattr(replica, "disconnect", disconnect_when_silent)
    engine = shadow_engine()
    host = DeafHost(engine, lives=2)
    with served(engine, host=host, max_restarts=1) as server, server.http() as http:
        host.die()
        server.until(lambda: server.router.deaths == 1 and server.router.phase == "ready")
        assert "dlstep_engine_deaths 1.0" in http.get("/metrics").text
        host.die()
        server.thread.join(60)
        assert not server.thread.is_alive()
        assert server.router.failure == "the engine died 2 times; last reason: the engine's thread ended"
        assert not server.router.not_made_reason


def test_deadlines_depend_on_the_phase():
    """An engine gets more time while it loads, and more for its first forward pass than for later ones."""
    idle = SimpleNamespace(call_soon_threadsafe=print, on_report=print)
    one = Replica(0, print, ServeOptions(start_timeout=99.0), idle)

    def deadlines(*passed):
        """The deadline that each engine misses, by seconds since its start, last heartbeat and last progress."""
        workers = [SimpleNamespace(age=age, silence=silence, standstill=standstill) for age, silence, standstill in passed]
        return [missed and missed[0] for missed in map(one._overdue, workers)]

    assert deadlines((98, 59, 999), (99, 0, 0), (0, 60, 0)) == [None, "start", "heartbeat"]
    one._ready_age = 1.0
    assert deadlines((999, 14, 359), (0, 15, 0), (0, 0, 360)) == [None, "heartbeat", "step"]
    report = StepReport((), Work(), EngineLoad(), busy_seconds=0.5)
    one._receive(SimpleNamespace(inbox=[report], silence=0, standstill=0), idle)
    assert deadlines((0, 0, 59), (0, 0, 60)) == [None, "step"]
