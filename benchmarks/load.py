"""Open-loop load on a running server: requests arrive at random and at rising rates, without waiting for earlier ones.

The client is minimal, to leave the cores of a small machine to the server: HTTP/1.0 over plain
sockets, one connection per request. Times are in milliseconds: to the first settled text, and per
token of an answer; `_p50` and `_p95` are percentiles. The CPU times are those of the server's
processes. If `DLSTEP_API_KEY` is set, requests carry this key.
"""

import asyncio
import json
import os
import random
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from dlstep import tiny

from . import entry

METRIC = re.compile(r'^([\w:]+)(?:\{kind="(\w+)"\})? (\S+)$', re.MULTILINE)
REQUESTS, AT_ONCE = 256, 32  # for the row with rate 0


@dataclass(slots=True)
class Answer:
    """The result of one request: status, times, and the counts that the server reported."""

    status: int = 0
    began: float = 0.0
    first: float | None = None
    ended: float = 0.0
    tokens: int = 0
    nfe: int = 0
    text: str = field(default="", repr=False)


async def ask(url: str, body: dict[str, Any]) -> Answer:
    """Send a streaming completion and read it to its end."""
    place = urlsplit(url)
    content = json.dumps({**body, "stream": True, "stream_options": {"include_usage": True}}).encode()
    head = f"POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n"
    if key := os.environ.get("DLSTEP_API_KEY"):
        head += f"Authorization: Bearer {key}\r\n"
    answer = Answer(began=time.perf_counter())
    reader, writer = await asyncio.open_connection(place.hostname, place.port or 80, limit=1 << 22)
    try:
        writer.write(head.encode() + b"\r\n" + content)
        answer.status = int((await reader.readline()).split()[1])
        async for line in reader:
            if line.startswith(b"data: {"):
                _read(answer, json.loads(line[6:]))
    finally:
        writer.close()
    answer.ended = time.perf_counter()
    return answer


def _read(answer: Answer, event: dict[str, Any]) -> None:
    """Store the data of a stream event."""
    for choice in event.get("choices", ()):
        if choice["text"] and answer.first is None:
            answer.first = time.perf_counter()
        answer.text += choice["text"]
    if (dlstep_data := event.get("dlstep")) and "finish_reason" in dlstep_data:
        answer.nfe += dlstep_data["nfe"]
    if usage := event.get("usage"):
        answer.tokens = usage["completion_tokens"]
    if "error" in event:
        answer.status = 500


async def counters(url: str) -> dict[str, float]:
    """Return the metrics of a server, those with a kind under `name/kind`."""
    place = urlsplit(url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port or 80)
    writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
    text = (await reader.read()).decode()
    writer.close()
    return {f"{name}/{kind}" if kind else name: float(value) for name, kind, value in METRIC.findall(text)}


async def at_rate(url: str, bodies: Iterable[dict[str, Any]], rate: float, seconds: float, seed: int) -> list[Answer]:
    """Return the answers to requests that arrive `rate` times per second on average, for `seconds`."""
    draws, tasks, bodies = random.Random(seed), list[asyncio.Task[Answer]](), iter(bodies)
    end, due = time.perf_counter() + seconds, time.perf_counter()
    while (due := due + draws.expovariate(rate)) < end:
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.append(asyncio.create_task(ask(url, next(bodies))))
    return await asyncio.gather(*tasks)


async def at_once(url: str, bodies: Sequence[dict[str, Any]], concurrency: int) -> list[Answer]:
    """Return the answers to all `bodies`, sent `concurrency` at a time."""
    seats = asyncio.Semaphore(concurrency)

    async def one(body: dict[str, Any]) -> Answer:
        async with seats:
            return await ask(url, body)

    return await asyncio.gather(*map(one, bodies))


def row_of(answers: list[Answer], before: dict[str, float], after: dict[str, float], rate: float) -> dict[str, float]:
    """Return the figures of one rate, and its cost by the server's metrics."""
    good = [answer for answer in answers if answer.status == 200]
    refused = sum(answer.status == 429 for answer in answers)
    took = max(answer.ended for answer in answers) - min(answer.began for answer in answers)
    first = [1e3 * (answer.first - answer.began) for answer in good if answer.first is not None]
    token = [1e3 * (answer.ended - answer.began) / answer.tokens for answer in good if answer.tokens]
    tokens, nfe = sum(answer.tokens for answer in good), sum(answer.nfe for answer in good)

    first_p50, first_p95 = np.percentile(first or [0.0], (50, 95)).tolist()
    token_p50, token_p95 = np.percentile(token or [0.0], (50, 95)).tolist()

    def spent(name: str) -> float:
        return after.get(name, 0.0) - before.get(name, 0.0)

    forwards = spent("dlstep_forwards_total/sampling") + spent("dlstep_forwards_total/storing")
    return {
        "rate": rate,
        "requests": len(answers),
        "refused": refused,
        "failed": len(answers) - len(good) - refused,
        "requests_per_s": len(good) / took,
        "tokens_per_s": tokens / took,
        "first_p50": first_p50,
        "first_p95": first_p95,
        "token_p50": token_p50,
        "token_p95": token_p95,
        "tokens_per_forward": tokens / max(nfe, 1),
        "engine_ms_per_forward": 1e3 * spent("dlstep_engine_cpu_seconds_total") / max(forwards, 1.0),
        "http_ms_per_request": 1e3 * spent("process_cpu_seconds_total") / len(answers),
    }


def bodies_of(prompts: Sequence[str], max_tokens: int, options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Return an endless iterator of request bodies that cycles through the prompts."""
    return ({"prompt": prompt, "max_tokens": max_tokens, "dlstep": options} for prompt in cycle(prompts))


def measure(
    url: str, rates: Sequence[float], seconds: float, max_tokens: int, options: str, seed: int
) -> Iterator[dict[str, float]]:
    """Yield a row for each rate in turn; 0 means `REQUESTS` requests, `AT_ONCE` at a time."""
    prompts = [problem.prompt for problem in tiny.problems(REQUESTS)]

    async def run(rate: float) -> dict[str, float]:
        before, bodies = await counters(url), bodies_of(prompts, max_tokens, json.loads(options))
        if rate:
            answers = await at_rate(url, bodies, rate, seconds, seed)
        else:
            answers = await at_once(url, list(islice(bodies, REQUESTS)), AT_ONCE)
        return row_of(answers, before, await counters(url), rate)

    for rate in rates:
        yield asyncio.run(run(rate))


COLUMNS = (
    "rate", "requests", "refused", "failed", "tokens_per_s", "first_p50", "first_p95", "token_p50", "token_p95",
    "tokens_per_forward",
)  # fmt: skip

if __name__ == "__main__":
    entry.run(
        __doc__,
        measure,
        COLUMNS,
        url=("http://127.0.0.1:8000", "Where the server listens."),
        rates=((1.0, 2.0, 4.0, 8.0, 16.0), "Requests a second, one row each; 0: 256 requests, 32 at a time."),
        seconds=(10.0, "Seconds for which requests come, at each rate."),
        max_tokens=(64, "Most tokens of an answer."),
        options=("{}", "The object `dlstep` of each request, in JSON."),
        seed=(0, "Seed of the times between requests."),
    )
