"""Clients of one API key that send constraints of any size and leave delay no other key's request for long."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from random import Random
from threading import Event

import httpx2

from ...helpers.serving import served, shadow_engine

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
    """Attack a server. Return the longest wait for /health, and how long another key waits for an answer to a new regex."""
    over, random, healths = Event(), Random(clients), []
    asked = [constraints(random)[number % 3] for number in range(clients)]

    def leave(constraint):
        with suppress(httpx2.TimeoutException):
            post(url, "attacker", constraint, ATTACK_SECONDS)

    def watch():
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


def test_four_clients_that_leave_delay_nobody():
    with served(shadow_engine(), keys=KEYS) as server:
        _, waited = attack(server.url, 4)
    assert waited < 12
