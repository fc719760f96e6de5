"""Open-loop load on a server: requests arrive by a Poisson process, regardless of earlier ones.

The client is minimal, to leave the cores of a small machine to the server: HTTP/1.0 over plain
sockets, one connection per request.
"""

import asyncio
import json
import random
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from statistics import quantiles
from typing import Any
from urllib.parse import urlsplit

METRIC = re.compile(r'^([\w:]+)(?:\{kind="(\w+)"\})? (\S+)$', re.MULTILINE)
REQUESTS, AT_ONCE = 256, 32  # for the row with rate 0
SECONDS = 600.0  # timeout of an answer


@dataclass(slots=True)
class Answer:
    """The result of one request: status, times, and the counts that the server reported."""

    status: int = 0
    began: float = 0.0
    first: float | None = None
    ended: float = 0.0
    prompt: int = 0
    tokens: int = 0
    nfe: int = 0
    text: str = field(default="", repr=False)

    @property
    def ms(self) -> float:
        """Return milliseconds from the request to the end of its answer."""
        return 1e3 * (self.ended - self.began)


@dataclass(frozen=True, slots=True)
class RequestLoad:
    """The requests of a row: seconds of arrivals, number of prompts, and options.

    With `warm`, each prompt was answered once before.
    """

    seconds: float = 0.0
    seed: int = 0
    prompts: int = 0
    max_tokens: int = 0
    warm: bool = False


@dataclass(frozen=True, slots=True)
class ServeRow:
    """Figures of one rate. Latencies are in milliseconds; `_p50` and `_p95` are percentiles.

    `busy_ms_per_forward` is the time with pending work, divided by forward passes. `answers` has
    prompt tokens, tokens and forward passes of each answer, in order of arrival.
    """

    rate: float
    requests: int
    refused: int
    failed: int
    requests_per_s: float
    tokens_per_s: float
    first_p50: float
    first_p95: float
    token_p50: float
    token_p95: float
    tokens_per_forward: float
    engine_ms_per_forward: float
    http_ms_per_request: float
    latency_p50: float
    latency_p95: float
    forwards: int
    rows_per_forward: float
    busy_ms_per_forward: float
    answers: tuple[tuple[int, int, int], ...]
    load: RequestLoad


async def ask(url: str, body: dict[str, Any], key: str | None = None) -> Answer:
    """Send a streaming completion and read it to its end."""
    place = urlsplit(url)
    content = json.dumps({**body, "stream": True, "stream_options": {"include_usage": True}}).encode()
    head = f"POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n"
    if key is not None:
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
        answer.prompt, answer.tokens = usage["prompt_tokens"], usage["completion_tokens"]
    if "error" in event:
        answer.status = 500


async def _get(url: str, path: str) -> str:
    place = urlsplit(url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port or 80)
    writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
    text = (await reader.read()).decode()
    writer.close()
    return text.partition("\r\n\r\n")[2]


async def counters(url: str) -> dict[str, float]:
    """Return the metrics of a server, those with a kind under `name/kind`."""
    found = METRIC.findall(await _get(url, "/metrics"))
    return {f"{name}/{kind}" if kind else name: float(value) for name, kind, value in found}


async def at_rate(
    url: str, bodies: Iterable[dict[str, Any]], rate: float, seconds: float, seed: int, key: str | None = None
) -> list[Answer]:
    """Return the answers to requests that arrive `rate` times per second on average, for `seconds`."""
    draws, tasks, bodies = random.Random(seed), list[asyncio.Task[Answer]](), iter(bodies)
    end, due = time.perf_counter() + seconds, time.perf_counter()
    while (due := due + draws.expovariate(rate)) < end:
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.append(asyncio.create_task(ask(url, next(bodies), key)))
    return await asyncio.gather(*tasks)


async def at_once(url: str, bodies: Sequence[dict[str, Any]], concurrency: int, key: str | None = None) -> list[Answer]:
    """Return the answers to all `bodies`, sent `concurrency` at a time."""
    seats = asyncio.Semaphore(concurrency)

    async def one(body: dict[str, Any]) -> Answer:
        async with seats:
            return await ask(url, body, key)

    return await asyncio.gather(*map(one, bodies))


def row_of(
    answers: list[Answer], before: dict[str, float], after: dict[str, float], rate: float, load: RequestLoad = RequestLoad()
) -> ServeRow:
    """Return the figures of one rate, and its cost by the server's metrics."""
    good = [answer for answer in answers if answer.status == 200]
    refused = sum(answer.status == 429 for answer in answers)
    took = max((answer.ended for answer in answers), default=0.0) - min((answer.began for answer in answers), default=0.0)
    first = [1e3 * (answer.first - answer.began) for answer in good if answer.first is not None]
    tokens, nfe = sum(answer.tokens for answer in good), sum(answer.nfe for answer in good)

    def spent(name: str) -> float:
        return after.get(name, 0.0) - before.get(name, 0.0)

    forwards = spent("dlstep_forwards_total/sampling") + spent("dlstep_forwards_total/storing")
    return ServeRow(
        rate,
        len(answers),
        refused,
        len(answers) - len(good) - refused,
        _ratio(len(good), took),
        _ratio(tokens, took),
        *_middle_and_slow(first),
        *_middle_and_slow([answer.ms / answer.tokens for answer in good if answer.tokens]),
        _ratio(tokens, nfe),
        _ratio(1e3 * spent("dlstep_engine_cpu_seconds_total"), forwards),
        _ratio(1e3 * spent("process_cpu_seconds_total"), len(answers)),
        *_middle_and_slow([answer.ms for answer in good]),
        int(forwards),
        _ratio(spent("dlstep_positions_computed_total"), forwards),
        _ratio(1e3 * spent("dlstep_engine_busy_seconds_total"), forwards),
        tuple([(answer.prompt, answer.tokens, answer.nfe) for answer in good]),
        load,
    )


def _ratio(total: float, count: float) -> float:
    """Return the quotient, or the total if the count is 0."""
    return total / (count or 1.0)


def _middle_and_slow(values: list[float]) -> tuple[float, float]:
    """Return the median and the 95th percentile."""
    if len(values) < 2:
        return (values[0], values[0]) if values else (0.0, 0.0)
    cuts = quantiles(values, n=20, method="inclusive")
    return cuts[9], cuts[18]


def bodies_of(prompts: Sequence[str], max_tokens: int, options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Return an endless iterator of request bodies that cycles through the prompts."""
    more = {"dlstep": options} if options else {}
    return ({"prompt": prompt, "max_tokens": max_tokens, **more} for prompt in cycle(prompts))


def measure(
    url: str,
    prompts: Sequence[str],
    *,
    rates: Sequence[float],
    seconds: float,
    max_tokens: int,
    options: dict[str, Any],
    seed: int,
    key: str | None,
    warm: bool = False,
) -> Iterator[ServeRow]:
    """Yield a row for each rate in turn; 0 means `REQUESTS` requests, `AT_ONCE` at a time.

    If `warm`, each prompt is answered once before, so that cached pages do not depend on earlier
    rows.
    """
    load = RequestLoad(seconds, seed, len(prompts), max_tokens, warm)

    async def run(rate: float) -> ServeRow:
        before, bodies = await counters(url), bodies_of(prompts, max_tokens, options)
        async with asyncio.timeout(seconds + SECONDS):
            if rate:
                answers = await at_rate(url, bodies, rate, seconds, seed, key)
            else:
                answers = await at_once(url, list(islice(bodies, REQUESTS)), AT_ONCE, key)
        return row_of(answers, before, await counters(url), rate, load)

    if warm:
        asyncio.run(at_once(url, list(islice(bodies_of(prompts, max_tokens, options), len(prompts))), AT_ONCE, key))
    for rate in rates:
        yield asyncio.run(run(rate))
