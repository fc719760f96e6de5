"""Clients of one API key that send constraints of any size and leave delay no other key's request for long."""

import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from random import Random
from threading import Event
from typing import Any

import httpx2
import pytest

from ...helpers.serving import served, shadow_engine
from .test_attack import Attacked

KEYS = ("attacker", "other")
PROMPT = "Max has 53 shells."
ATTACK_SECONDS = 1.0


def constraints(random: Random) -> list[dict[str, Any]]:
    """Three constraints that cannot be compiled within the limits, different in every call."""
    letters = [chr(random.randrange(97, 123)) for _ in range(1_000_000)]
    choices = ["".join(letters[start : start + 100]) for start in range(0, len(letters), 100)]
    items = 10_000 + random.randrange(1000)
    return [
        {"choice": choices},
        {"regex": rf"\p{{L}}{{{500 + random.randrange(100)}}}"},
        {"json": {"type": "array", "maxItems": items, "items": {"type": "object", "properties": {"a": {"type": "string"}}}}},
    ]


def post(url: str, key: str, constraint: dict[str, Any], seconds: float) -> httpx2.Response:
    body = {"prompt": PROMPT, "max_tokens": 16, "structured_outputs": constraint}
    return httpx2.post(f"{url}/v1/completions", json=body, headers={"Authorization": f"Bearer {key}"}, timeout=seconds)


def attack(url: str, clients: int) -> tuple[float, float]:
    """Attack a server. Return the longest wait for /health, and how long another key waits for an answer to a new regex."""
    over, random, healths = Event(), Random(clients), list[float]()
    asked = [constraints(random)[number % 3] for number in range(clients)]

    def leave(constraint: dict[str, Any]) -> None:
        with suppress(httpx2.TimeoutException):
            post(url, "attacker", constraint, ATTACK_SECONDS)

    def watch() -> None:
        with httpx2.Client(base_url=url, timeout=60) as http:
            while not over.wait(0.02):
                begun = time.monotonic()
                http.get("/health")
                healths.append(time.monotonic() - begun)

    with ThreadPoolExecutor(clients + 1) as threads:
        watching = threads.submit(watch)
        attacking = [threads.submit(leave, constraint) for constraint in asked]
        time.sleep(ATTACK_SECONDS)
        begun = time.monotonic()
        answer = post(url, "other", {"regex": f"[0-9]{{{clients}}}"}, 60)
        waited = time.monotonic() - begun
        over.set()
        watching.result()
        for each in attacking:
            each.result()
    assert answer.status_code == 200 and answer.json()["choices"][0]["text"].isdigit(), answer.text
    return max(healths), waited


def test_four_clients_that_leave_delay_nobody() -> None:
    with served(shadow_engine(), keys=KEYS) as server:
        _, waited = attack(server.url, 4)
    assert waited < 12


@pytest.mark.stress
def test_sixteen_clients_that_leave_delay_nobody_and_leave_no_memory(tmp_path: Path, report: Callable[[str], None]) -> None:
    (tmp_path / "keys").write_text("\n".join(KEYS))
    command = [
        sys.executable,
        str(Path(__file__).with_name("attacked.py")),
        "tiny-bd",
        "--port",
        "0",
        "--log_requests",
        "false",
    ]
    command += ["--api_key_file", str(tmp_path / "keys")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            server = Attacked(process)
            attack(server.url, 1)  # starts the process that compiles
            before = server.report()
            healths, waits = zip(*[attack(server.url, 16) for _ in range(2)], strict=True)
            after = server.report()
        finally:
            process.terminate()
    more = (after["memory"] - before["memory"]) / (1 << 20)
    report(
        f"16 clients that leave after {ATTACK_SECONDS:g} s: /health within {max(healths):.2f} s, the longest turn of the event "
        f"loop {after['stall']:.2f} s of CPU, another key's new regex within {max(waits):.1f} s, {more:.0f} MiB more memory"
    )
    assert max(waits) < 12 and more < 50 and after["stall"] < 0.3
