"""The cost of being watched: CPU of the engine's process, and memory of both."""

import asyncio
import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import process_time

import psutil
import pytest

from benchmarks.load import at_once
from dlstep import Plan, Samples, SamplingParams
from dlstep.core import Driver
from dlstep.serve.engine_loop import EngineLoop
from dlstep.serve.messages import Drop, Submit
from dlstep.text.prompts import encode

from ...helpers.serving import questions, tiny_llm
from ..cli.test_serve import command

BATCH, TURNS = 32, 12
MEGABYTE = 1 << 20


class Tape:
    """A driver that records its samples and replays them: only the work of the engine loop is left."""

    def __init__(self, driver: Driver) -> None:
        self._driver, self.samples = driver, list[Samples]()
        self.again: Iterator[Samples] | None = None

    def run(self, plan: Plan) -> Samples:
        """The answer to a plan."""
        if self.again is not None:
            return next(self.again)
        self.samples.append(self._driver.run(plan))
        return self.samples[-1]


def spent(loop: EngineLoop, watched: int, first: int) -> float:
    """Return the CPU milliseconds per forward pass of a batch with `watched` recorded requests, including pickling."""
    engine, params = tiny_llm().engine, SamplingParams(max_tokens=64, ignore_eos=True)
    for number, prompt in enumerate(questions(BATCH)):
        watches = number < watched
        asked = Submit(first + number, encode(engine, prompt), params, number, steps=watches, keeps=watches)
        loop.execute([asked])
    forwards, began = 0, process_time()
    while not loop.idle:
        pickle.dumps(loop.step())
        forwards += 1
    took = process_time() - began
    loop.execute([Drop(first + number) for number in range(BATCH)])
    return 1e3 * took / forwards


@pytest.mark.stress
def test_being_watched_costs_the_engine_little(report: Callable[[str], None]) -> None:
    """At batch 32, one or all requests watched against none; then the same without a model, all of it the engine's own work."""
    loop = EngineLoop(tiny_llm().engine)
    found: dict[int, list[float]] = {0: [], 1: [], BATCH: []}
    for turn in range(TURNS):
        for place, (watched, figures) in enumerate(found.items()):
            figures.append(spent(loop, watched, BATCH * (3 * turn + place)))
    one, every = (median(a / b for a, b in zip(found[n][1:], found[0][1:], strict=True)) for n in (1, BATCH))
    tape = Tape(tiny_llm().engine.driver)
    spent(EngineLoop(replace(tiny_llm().engine, driver=tape)), 0, 0)
    bare: dict[int, float] = {}
    for watched in found:
        figures = []
        for _ in range(TURNS):
            tape.again = iter(tape.samples)
            figures.append(spent(EngineLoop(replace(tiny_llm().engine, driver=tape)), watched, 0))
        bare[watched] = min(figures)
    report(f"CPU per forward pass of the engine at batch {BATCH}: {one:.2f}x with one request watched, {every:.2f}x with all; "
           f"without the model {bare[0]:.2f} ms, {bare[1]:.2f} with one watched, {bare[BATCH]:.2f} with all")  # fmt: skip
    assert one <= 1.10 and every <= 1.10
    assert bare[1] <= 1.10 * bare[0]


@pytest.mark.stress
def test_watched_requests_leave_nothing_behind(tmp_path: Path, report: Callable[[str], None]) -> None:
    """Thousands of requests, each watched, forked and looked at again, with few kept: neither process grows."""
    bodies = [{"prompt": prompt, "max_tokens": 64, "dlstep": {"stream": "steps"}} for prompt in questions(256)]
    with command(tmp_path, "--max_num_reqs", "32", "--kept_requests", "16") as server:
        processes = {"HTTP": psutil.Process(server.process.pid), "engine": server.engine}
        page = server.http  # one that stays open: it asks again and again, and forks
        sizes: dict[str, list[float]] = {name: [] for name in processes}
        for _ in range(14):
            answers = asyncio.run(at_once(server.url, bodies, 32))
            assert all(answer.status == 200 for answer in answers)
            for row in page.get("/v1/requests").json()["data"]:
                seen = page.get(f"/v1/requests/{row['id']}/steps")
                fork = page.post(f"/v1/requests/{row['id']}/fork", json={"seq": 0, "dlstep": {"accept_threshold": 0.5}})
                assert {seen.status_code, fork.status_code} <= {200, 404}  # forks of earlier rows may have pushed it out
            for name, process in processes.items():
                sizes[name].append(process.memory_info().rss / MEGABYTE)
    for name, megabytes in sizes.items():
        early, late = median(megabytes[3:6]), median(megabytes[-3:])
        report(f"{len(sizes[name])} x 256 watched requests: {name} process {early:.0f} MB, then {late:.0f} MB")
        assert late <= early + 16, (name, megabytes)
