"""Hostile requests delay no other request: none of them occupies the event loop for long."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ...helpers.serving import served, shadow_engine, stalls_of_loop
from .hostile_bodies import JSON_HEADERS, Body, bodies

LIMIT = 1 << 20  # bytes, as the server has it by default
STALL = 0.2  # seconds of the event loop's CPU time
WORK = 1.5  # seconds of CPU that one body may cost the whole process, the client's share included


def some(limit: int) -> Iterator[Body]:
    """One body for each kind of value, in alternating fields, and lists of floats as prompts."""
    kinds: dict[str, list[Body]] = {}
    for body in bodies(limit):
        kinds.setdefault(body.name.partition(" as ")[0].partition(" of /")[0], []).append(body)
    for place, found in enumerate(kinds.values()):
        yield found[place % len(found)]
    yield kinds["a list of floats"][0]


@pytest.mark.parametrize(("chosen", "limit"), [(some, LIMIT // 4), pytest.param(bodies, LIMIT, marks=pytest.mark.stress)])
def test_no_body_stalls_the_event_loop(
    chosen: Callable[[int], Iterator[Body]], limit: int, template: Any, report: Callable[[str], None]
) -> None:
    longest = most = (0.0, "")
    count = 0
    with stalls_of_loop() as stalls, served(shadow_engine(), chat_template=str(template)) as server, server.http() as http:
        for body in chosen(limit):
            count += 1
            stalls.reset()
            spent = time.process_time()
            response = http.post(body.path, content=body.content, headers=JSON_HEADERS)
            assert response.status_code in (200, 400, 404), (body.name, response.text[:200])
            # A message has at most 500 characters, and an escaped one takes six bytes.
            assert len(response.content) < 4000 or response.status_code == 200, body.name
            assert http.get("/health").status_code == 200
            longest = max(longest, (stalls.longest, body.name))
            most = max(most, (time.process_time() - spent, body.name))
            assert stalls.longest < STALL, (body.name, stalls.longest, stalls.what)
        server.until_idle()
    report(f"{count} bodies: the event loop worked for {longest[0]:.3f} s at once ({longest[1]})")
    report(f"{count} bodies: one cost {most[0]:.2f} s of CPU ({most[1]})")
    assert most[0] < WORK
