"""Blame over HTTP and in batches: a request with a bug in its rule fails alone."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from dlstep.batch.engine import BatchEngine
from dlstep.core import init
from dlstep.strategies.multi_bd import MultiBD

from ...helpers.faulty import CHOICES, FaultyChoice, FaultyStrategy
from ...helpers.serving import COMPLETIONS, served, shadow_engine
from ...unit.batch.batches import lines_of, request, run

HEALTHY = 8
CHECKED_BEFORE_SUBMIT = (
    ("rows_at_once", "system exit", 400),
    ("__post_init__", "system exit", 400),
    ("init", "exception", 500),
)


def engine():
    """An engine whose rule has a bug for requests that select it."""
    whole = shadow_engine(num_pages=120)
    first = init(whole.first.config, MultiBD(block_size=8, buffer_size=2, rule=FaultyChoice()))
    return replace(whole, first=first)


def bodies(kind):
    """Eight healthy requests, of which some are sampled, and one with a bug among them."""
    healthy = [
        {"prompt": f"Number {n}. " * (1 + n % 3), "max_tokens": 16 + n, "temperature": 0.5 * (n % 2), "seed": n}
        for n in range(HEALTHY)
    ]
    bug = {"prompt": "Number 0. ", "max_tokens": 24, "dlstep": {"kind": kind, "after": len(kind) % 3}}
    place = len(kind) % HEALTHY
    return [*healthy[:place], bug, *healthy[place:]]


def outcome(status, reply):
    """The status of a request, and its text or error."""
    return status, reply["error"]["message"] if "error" in reply else reply["choices"][0]["text"]


def all_answered(server, bodies):
    with server.http() as http, ThreadPoolExecutor(len(bodies)) as threads:
        responses = list(threads.map(lambda body: http.post(COMPLETIONS, json=body), bodies))
    return [outcome(response.status_code, response.json()) for response in responses]


def check(kind, bodies, found, alone):
    for body, (status, text) in zip(bodies, found, strict=True):
        if "dlstep" in body:
            assert status == 500 and "FaultyChoice.chosen" in text and "faulty.py:" in text, (kind, text)
        else:
            assert (status, text) == (200, alone[body["prompt"] + str(body["seed"])]), kind


def test_faulty_rule_fails_alone_over_http_and_in_batches(tmp_path):
    healthy = [body for body in bodies("") if "dlstep" not in body]
    with served(engine()) as server:
        alone = {body["prompt"] + str(body["seed"]): server.choice(**body)["text"] for body in healthy}
        for kind in CHOICES:
            check(kind, bodies(kind), all_answered(server, bodies(kind)), alone)
        server.until_idle()
        assert not server.router.deaths and server.router.phase == "ready"
    requests = [(kind, body) for kind in CHOICES for body in bodies(kind)]
    lines = lines_of([request(str(number), body) for number, (_, body) in enumerate(requests)])
    rows = run(lines, tmp_path / "out.jsonl", BatchEngine(engine()))
    for (kind, body), row in zip(requests, rows, strict=True):
        check(kind, [body], [outcome(row["response"]["status_code"], row["response"]["body"])], alone)


@pytest.mark.parametrize("hook, kind, expected", CHECKED_BEFORE_SUBMIT)
def test_faulty_strategy_blocks_no_other_request(hook, kind, expected):
    """The HTTP process calls hooks before it submits a request, in the one thread that reads all bodies."""
    whole = shadow_engine(num_pages=120)
    first = init(whole.first.config, FaultyStrategy(block_size=8, buffer_size=2))
    healthy = [body for body in bodies("") if "dlstep" not in body]
    bug = {"prompt": "Number 0. ", "max_tokens": 24, "dlstep": {"hook": hook, "kind": kind}}
    with served(replace(whole, first=first)) as server:
        alone = all_answered(server, healthy)
        (status, text), *others = all_answered(server, [bug, *healthy])
        assert status == expected and f"FaultyStrategy.{hook} raised" in text and "faulty.py:" in text
        assert others == alone
        assert not server.router.deaths
