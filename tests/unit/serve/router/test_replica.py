"""Engines that die: which requests fail, which wait, and when the server gives up."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from dlstep.serve.router.replica import AHEAD

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


def test_the_server_gives_up_after_so_many_restarts():
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
