"""Clients of one API key that send constraints of any size and leave delay no other key's request for long."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from random import Random

import httpx2

from ...helpers.serving import served

KEYS = ("attacker", "other")
PROMPT = "Max has 53 shells."
ATTACK_SECONDS = 1.0


def constraints(random):
    """Three constraints that cannot be compiled within the limits, different in every call."""
    letters = [chr(random.randrange(97, 123)) for _ in range(1_000_000)]
    choices = ["".join(letters[start : start + 100]) for start in range(0, len(letters), 100)]
    items = 10_000 + random.randrange(1000)
    return [
        {"choice": choices},
        {"regex": rf"\p{{L}}{{{500 + random.randrange(100)}}}"},
        {"json": {"type": "array", "maxItems": items, "items": {"type": "object", "properties": {"a": {"type": "string"}}}}},
    ]


def post(url, key, constraint, seconds):
    body = {"prompt": PROMPT, "max_tokens": 16, "structured_outputs": constraint}
    return httpx2.post(f"{url}/v1/completions", json=body, headers={"Authorization": f"Bearer {key}"}, timeout=seconds)


def attack(url, clients):
    """Attack a server. Return how long another key waits for an answer to a new regex."""
    random = Random(clients)
    asked = [constraints(random)[number % 3] for number in range(clients)]

    def leave(constraint):
        with suppress(httpx2.TimeoutException):
            post(url, "attacker", constraint, ATTACK_SECONDS)

    with ThreadPoolExecutor(clients) as threads:
        attacking = [threads.submit(leave, constraint) for constraint in asked]
        time.sleep(ATTACK_SECONDS)
        begun = time.monotonic()
        answer = post(url, "other", {"regex": f"[0-9]{{{clients}}}"}, 60)
        waited = time.monotonic() - begun
        for each in attacking:
            each.result()
    assert answer.status_code == 200 and answer.json()["choices"][0]["text"].isdigit(), answer.text
    return waited


def test_four_clients_that_leave_delay_nobody():
    with served(keys=KEYS) as server:
        assert attack(server.url, 4) < 12
