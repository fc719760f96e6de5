"""`dlstep serve --replicas 2`: engines that are killed or stopped under load."""

import json
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from ...helpers.serving import questions
from ...helpers.waiting import until
from ...unit.cli.test_serve import START, command, engines_of

CLIENTS = 6


def until_both_ready(server):
    def ready():
        return [each["status"] for each in server.http.get("/ready").json()["replicas"]] == ["ready", "ready"]

    until(ready, START, server.log.read_text)


@pytest.mark.stress
def test_one_engine_is_killed_and_one_stopped_under_load(tmp_path, report):
    """The faults lose only streams that had begun, no whole answers."""
    line = "tiny-bd --replicas 2 --max_num_reqs 8 --num_threads 1 --heartbeat_timeout 6"
    with command(tmp_path, line) as server:
        until_both_ready(server)
        prompts, stop = questions(CLIENTS), threading.Event()

        def text(number):
            response = server.http.post("/v1/completions", json={"prompt": prompts[number], "max_tokens": 64})
            assert response.status_code == 200, response.text
            return response.json()["choices"][0]["text"]

        def ask(number):
            count = 0
            while not stop.is_set():
                assert text(number) == expected[number]
                assert server.http.get("/ready").status_code == 200
                count += 1
            return count

        expected = [text(number) for number in range(CLIENTS)]
        with ThreadPoolExecutor(CLIENTS) as threads:
            asking = [threads.submit(ask, number) for number in range(CLIENTS)]
            first = {engine.pid for engine in engines_of(server.process.pid)}
            assert len(first) == 2
            os.kill(min(first), signal.SIGKILL)
            server.until_metric("dlstep_engine_deaths 1.0", there=True)
            until_both_ready(server)
            stopped = next(engine for engine in engines_of(server.process.pid) if engine.pid in first)
            os.kill(stopped.pid, signal.SIGSTOP)
            server.until_metric("dlstep_engine_deaths 2.0", there=True)
            time.sleep(0.5)
            stop.set()
            count = sum(each.result() for each in asking)
        until_both_ready(server)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0 and "Traceback" not in server.log.read_text(), server.log.read_text()
    rows = [json.loads(line) for line in (tmp_path / "stdout").read_text().splitlines()]
    assert all(row["finish_reasons"] == ["stop"] for row in rows) and len(rows) == count + CLIENTS
    report(f"of two engines, one killed and one stopped under load: {count} answers, all equal, none lost")
