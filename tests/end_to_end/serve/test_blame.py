"""Blame over HTTP and in batches: a request with a bug in its rule fails alone."""

import asyncio
import json
from dataclasses import replace

import pytest
from openai import APIStatusError, AsyncOpenAI

from dlstep.batch.checkpoint import answer_all
from dlstep.batch.engine import BatchEngine
from dlstep.batch.lines import read_lines
from dlstep.core import init
from dlstep.strategies.multi_bd import MultiBD

from ...helpers.faulty import CHOICES, FaultyChoice, FaultyStrategy
from ...helpers.serving import served, shadow_engine

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


async def answered(client, body):
    """Return the status of a request, and its text or error."""
    body = dict(body)
    extra = {"dlstep": body.pop("dlstep")} if "dlstep" in body else None
    try:
        found = await client.completions.create(model="shadow", extra_body=extra, **body)
        return 200, found.choices[0].text
    except APIStatusError as error:
        return error.status_code, str(error.message)


async def all_answered(url, bodies):
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        return list(await asyncio.gather(*[answered(client, body) for body in bodies]))


def check(kind, bodies, found, alone):
    for body, (status, text) in zip(bodies, found, strict=True):
        if "dlstep" in body:
            assert status == 500 and "FaultyChoice.chosen" in text and "faulty.py:" in text, (kind, text)
        else:
            assert (status, text) == (200, alone[body["prompt"] + str(body["seed"])]), kind


def test_faulty_rule_fails_alone_over_http_and_in_batches(tmp_path):
    healthy = [body for body in bodies("") if "dlstep" not in body]
    with served(engine()) as server:
        alone = {body["prompt"] + str(body["seed"]): asyncio.run(all_answered(server.url, [body]))[0][1] for body in healthy}
        for kind in CHOICES:
            requests = bodies(kind)
            check(kind, requests, asyncio.run(all_answered(server.url, requests)), alone)
        server.until_idle()
        with server.http() as client:
            assert not server.router.deaths and client.get("/ready").status_code == 200
    requests = [(kind, body) for kind in CHOICES for body in bodies(kind)]
    rows = [
        {"custom_id": str(n), "method": "POST", "url": "/v1/completions", "body": {"model": "shadow", **body}}
        for n, (_, body) in enumerate(requests)
    ]
    lines = read_lines("in.jsonl", "".join(json.dumps(row) + "\n" for row in rows).encode())
    answer_all(BatchEngine(engine()), lines, tmp_path / "out.jsonl")
    found = [json.loads(line)["response"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    for (kind, body), response in zip(requests, found, strict=True):
        answer = response["body"]
        text = answer["error"]["message"] if "error" in answer else answer["choices"][0]["text"]
        check(kind, [body], [(response["status_code"], text)], alone)


@pytest.mark.parametrize("hook, kind, expected", CHECKED_BEFORE_SUBMIT)
def test_faulty_strategy_blocks_no_other_request(hook, kind, expected):
    """The HTTP process calls hooks before it submits a request, in the one thread that reads all bodies."""
    whole = shadow_engine(num_pages=120)
    first = init(whole.first.config, FaultyStrategy(block_size=8, buffer_size=2))
    healthy = [body for body in bodies("") if "dlstep" not in body]
    bug = {"prompt": "Number 0. ", "max_tokens": 24, "dlstep": {"hook": hook, "kind": kind}}
    with served(replace(whole, first=first)) as server:
        alone = asyncio.run(all_answered(server.url, healthy))
        (status, text), *others = asyncio.run(all_answered(server.url, [bug, *healthy]))
        assert status == expected and f"FaultyStrategy.{hook} raised" in text and "faulty.py:" in text
        assert others == alone
        assert not server.router.deaths
