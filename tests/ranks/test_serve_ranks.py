"""`dlstep serve --tp 2`: answers, a rank that is killed, and the end."""

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from test_serve_process import LONG, Command, command, engines_of, until_gone


def rank_of(server: Command) -> psutil.Process:
    """The process of rank 1."""
    (rank,) = engines_of(server.engine.pid)
    return rank


@pytest.mark.slow
@pytest.mark.stress
def test_a_killed_rank_ends_its_requests_and_the_group_starts_again(tmp_path: Path, report: Callable[[str], None]):
    with command(tmp_path, "tiny-bd", "--tp", "2", "--num_threads", "1") as server:
        engine, rank = server.engine, rank_of(server)
        question = {**LONG, "max_tokens": 16, "ignore_eos": False}
        answer = server.http.post("/v1/completions", json=question).json()["choices"][0]["text"]

        def ended(stream: bool) -> tuple[float, str]:
            with server.http.stream("POST", "/v1/completions", json={**LONG, "stream": stream, "n": 4}) as response:
                text = "".join(response.iter_text())
            return time.monotonic(), text

        with ThreadPoolExecutor(2) as threads:
            under_way = [threads.submit(ended, stream) for stream in (False, True)]
            server.until_metric("vllm:num_requests_running 8.0", there=True)
            killed = time.monotonic()
            os.kill(rank.pid, signal.SIGKILL)
            for each in under_way:
                told, text = each.result()
                report(f"told of a killed rank after {told - killed:.2f} s")
                assert told - killed < 5 and "engine_died" in text
        until_gone(engine, 5)
        server.until_ready()
        assert "rank 1 of 2 was killed by SIGKILL" in server.log.read_text()
        assert server.http.post("/v1/completions", json=question).json()["choices"][0]["text"] == answer
        engine, rank = server.engine, rank_of(server)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0
        until_gone(engine, 20)
        until_gone(rank, 20)
