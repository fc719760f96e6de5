"""`dlstep serve --tp 2`: answers, a rank that is killed or stopped, in a step and at start, and the end."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import psutil
import pytest

from ...unit.cli.test_serve import LONG, START, command, engines_of, until_gone


def rank_of(server):
    """The process of rank 1."""
    (rank,) = engines_of(server.engine.pid)
    return rank


def new_rank(server, old):
    """The process of rank 1 of a group that is starting, once it responds."""
    end = time.monotonic() + START
    while time.monotonic() < end:
        with suppress(psutil.Error, ValueError, OSError):
            rank = rank_of(server)
            if rank.pid != old.pid and server.loaded(rank.pid):
                time.sleep(1.0)
                return rank
        time.sleep(0.05)
    raise AssertionError("no rank was started again")


@pytest.mark.stress
@pytest.mark.parametrize("fault", [signal.SIGSTOP, signal.SIGKILL], ids=["stopped", "killed"])
def test_a_rank_that_stops_in_a_step_or_at_start_is_replaced(fault, tmp_path, report):
    with command(tmp_path, "tiny-bd --tp 2 --num_threads 1 --rank_timeout 6 --request_timeout 5") as server:
        engine, rank = server.engine, rank_of(server)

        def answer():
            question = {**LONG, "max_tokens": 16, "ignore_eos": False}
            return server.http.post("/v1/completions", json=question).json()["choices"][0]["text"]

        def ended():
            response = server.http.post("/v1/completions", json=LONG)
            return time.monotonic(), response.text

        expected = answer()

        with ThreadPoolExecutor(8) as threads:
            under_way = [threads.submit(ended) for _ in range(8)]
            server.until_metric("vllm:num_requests_running 8.0", there=True)
            struck = time.monotonic()
            os.kill(rank.pid, fault)
            for each in under_way:
                told, text = each.result()
                assert "error" in text or "timeout" in text, text
                report(f"{fault.name}: a request ended after {told - struck:.2f} s")
                assert told - struck < 5 + 5
        until_gone(engine, 20)
        until_gone(rank, 20)
        starting = new_rank(server, rank)
        assert server.http.get("/ready").status_code == 503
        os.kill(starting.pid, fault)
        until_gone(starting, 60)
        server.until_ready()
        report(f"{fault.name}: ready again after {time.monotonic() - struck:.1f} s and two restarts")
        assert answer() == expected
        reason = "rank 1 of 2 did not answer for" if fault == signal.SIGSTOP else "rank 1 of 2 was killed by SIGKILL"
        assert server.log.read_text().count(reason) >= 2
        assert server.http.get("/ready").json()["engine_deaths"] == 2
        engine, rank = server.engine, rank_of(server)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0
        until_gone(engine, 20)
        until_gone(rank, 20)
