"""Everything at once: hostile bodies, idle and half-open connections, readers that never read. The server keeps responding."""

import json
import random
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from threading import Event
from typing import NamedTuple

import httpx2
import pytest

from ...helpers.serving import TEMPLATE
from ...helpers.waiting import until
from ...unit.serve.http.test_server import raw, request
from .hostile_bodies import bodies

STALL = 0.2  # seconds of CPU time of the event loop in one turn
ATTACKS = 2
GROWTH = 20 << 20  # bytes of memory that attacks after the first may leave
LEAK = 0.01  # share of the allocated blocks that all attacks after the first may leave
HALF = b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Le"

STREAM = {"prompt": "x", "max_tokens": 900, "ignore_eos": True, "stream": True, "logprobs": 1, "dlstep": {"stream": "steps"}}


class Attack(NamedTuple):
    """The amounts of an attack."""

    bodies: int
    limit: int  # bytes of a body
    idle: int
    half_open: int
    silent_readers: int


SHORT = Attack(bodies=24, limit=1 << 17, idle=50, half_open=20, silent_readers=4)
FULL = Attack(bodies=200, limit=1 << 20, idle=500, half_open=100, silent_readers=32)


def chosen(attack):
    """Return bodies of every kind, drawn at random."""
    kinds = {}
    for body in bodies(attack.limit):
        kinds.setdefault(body.name.partition(" as ")[0], []).append(body)
    draws = random.Random(7)
    rounds = ([draws.choice(each) for each in kinds.values()] for _ in range(attack.bodies))
    return list(islice((body for round_ in rounds for body in round_), attack.bodies))


def carry_out(attack, url, sent):
    """Attack a server. Return the longest response time of `/health` in seconds."""
    slowest, over = [0.0], Event()

    def connected(stack, head, *, reads=True):
        stack.enter_context(raw(url, head, small=not reads))

    def watch():
        with httpx2.Client(base_url=url, timeout=60) as http:
            while not over.is_set():
                begin = time.monotonic()
                assert http.get("/health").status_code == 200
                slowest.append(time.monotonic() - begin)
                time.sleep(0.02)

    def send(body):
        response = http.post(body.path, content=body.content, headers={"Content-Type": "application/json"})
        assert response.status_code in (200, 400, 404), (body.name, response.text[:200])

    with ExitStack() as stack, ThreadPoolExecutor(9) as threads, httpx2.Client(base_url=url, timeout=120) as http:
        for _ in range(attack.idle):
            connected(stack, b"")
        for _ in range(attack.half_open):
            connected(stack, HALF)
        for number in range(attack.silent_readers):
            connected(stack, request(path="/openapi.json") * 100 if number % 2 else request(STREAM) * 4, reads=False)
        watching = threads.submit(watch)
        try:
            list(threads.map(send, sent))
        finally:
            over.set()
        watching.result()
    return max(slowest)


class Attacked:
    """A running `dlstep serve` under attack."""

    def __init__(self, process):
        self._process = process
        self.url = self._line(r"listening on (\S+);")
        self._until("/ready", '"status": "ready"')

    def _line(self, pattern):
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if found := re.search(pattern, line):
                return found[1]
        raise AssertionError("the server has ended")

    def _until(self, path, *words):
        until(lambda: all(word in httpx2.get(self.url + path, timeout=60).text for word in words), 120, lambda: words)

    def report(self):
        """Return the longest turn of the event loop since the last report, and the memory once the server is idle."""
        self._until("/metrics", "vllm:num_requests_running 0.0", "vllm:num_requests_waiting 0.0")
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return json.loads(self._line(r"report: (.*)"))


@pytest.mark.parametrize("attack", [SHORT, pytest.param(FULL, marks=pytest.mark.stress)], ids=["short", "full"])
def test_an_attack_stalls_nobody_and_leaves_nothing(attack, tmp_path, report):
    sent, program, template = chosen(attack), Path(__file__).with_name("attacked.py"), tmp_path / "template.jinja"
    template.write_text(TEMPLATE)
    # The first attack keeps as many requests, and each further one takes their place.
    options = f"tiny-bd --port 0 --chat_template {template} --log_requests false --kept_requests 8"
    command = [sys.executable, str(program), *options.split()]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            server = Attacked(process)
            before, waits, found = server.report(), [], []
            for _ in range(ATTACKS):
                waits.append(carry_out(attack, server.url, sent))
                found.append(server.report())
        finally:
            process.terminate()
    longest = max(each["stall"] for each in found)
    memory = [each["memory"] / 2**20 for each in (before, *found)]
    left = found[-1]["blocks"] / found[0]["blocks"] - 1
    report(
        f"{attack}: longest turn of the loop {longest:.3f} s of CPU, slowest /health {max(waits):.2f} s; memory before and "
        f"after each attack {', '.join(f'{each:.1f}' for each in memory)} MiB; {left:+.2%} blocks after the first attack"
    )
    assert longest < STALL, found
    assert left < LEAK, found
    assert found[-1]["memory"] - found[0]["memory"] < GROWTH, memory
