"""Host cost per request and step: schedule, lower, unpack, commit, with a scripted driver.

At most four blocks of 32 in flight, pages of 32, two tokens unmasked per step (with `_full`: nearly
four, one in each block); canvases of 256 that never settle. Long answers are built by unmasking
whole blocks first. Generating samples is not timed. Each step counts with its minimum processor
time over several interleaved repetitions.
"""

import gc
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from os import sysconf
from pathlib import Path
from random import Random
from time import process_time
from typing import Any, Literal

from .. import strategies
from ..core import (
    Config,
    Request,
    Samples,
    SamplingParams,
    State,
    add,
    commit,
    init,
    schedule,
)
from ..core.automaton import Automaton
from ..core.lifecycle import farthest
from ..testing.scripted import ScriptedDriver
from .answers import BATCHES, BLOCK, EOS, LENGTHS, SCRIPTS, StrategyScript
from .torch_lowering import TorchLowering

Regime = Literal["prompt", "generated"]
REGIMES: tuple[Regime, ...] = ("prompt", "generated")
PAGE = 32
SAMPLED_HEAD = 256  # positions left to decode during the measurement
REPETITIONS = 5
STEPS = 32  # per measurement: two blocks, so that opening, sealing and storing them is included


@dataclass(frozen=True, slots=True)
class HostCost:
    """Microseconds per request and step."""

    strategy: str
    regime: Regime
    length: int
    batch: int
    schedule_us: float
    lower_us: float
    unpack_us: float
    commit_us: float


def build(strategy: str, regime: Regime, length: int, batch: int, random: Random | None = None) -> State:
    """Return a state of `batch` running requests of about `length` tokens, each in mid-answer."""
    return build_script(SCRIPTS[strategy], regime, length, batch, random)


def build_script(
    script: StrategyScript,
    regime: Regime,
    length: int,
    batch: int,
    random: Random | None = None,
    constraint: Automaton | None = None,
) -> State:
    """Return the same as `build` for any script, optionally with a constraint on every request."""
    limit = length + SAMPLED_HEAD + 64
    chosen: Any = strategies.load(script.strategy)  # untyped: each strategy has different fields
    value = chosen(**script.options)
    reach = farthest(value, limit)
    pages = -(-reach // PAGE) * batch
    config = Config(script.spec, PAGE, pages, max_model_len=limit, max_num_batched_tokens=batch * reach, max_num_reqs=batch)
    state = init(config, value)
    random = random or Random(0)
    prompt_length = length if regime == "prompt" else BLOCK
    shared = tuple(random.randrange(EOS) for _ in range(prompt_length - 1))
    for number in range(batch):  # different first tokens, so that no two requests share a page
        params = SamplingParams(max_tokens=limit - prompt_length)
        state = add(state, Request(number, (number, *shared), params, constraint=constraint))
    driver = script.filling(random)
    while min((sequence.settled for sequence in state.running), default=0) < length - BLOCK:
        state = commit(state, driver.run(schedule(state)))
        assert not state.finished, "answers are filled before there is anything to measure"
    steady = script.driver(random)
    for _ in range(24):
        state = commit(state, steady.run(schedule(state)))
    return state


def measure_core(state: State, driver: ScriptedDriver) -> list[tuple[float, ...]]:
    """Return the seconds of schedule and of commit in each of `STEPS` steps from `state` on."""
    spent: list[tuple[float, ...]] = []
    for _ in range(STEPS):
        begin = process_time()
        plan = schedule(state)
        planned = process_time() - begin
        rows = driver.run(plan).rows
        begin = process_time()
        state = commit(state, Samples(plan, rows, checked=True))  # the cache digest is computed when samples are created
        spent.append((planned, process_time() - begin))
    return spent


def measure_lowering(state: State, driver: ScriptedDriver) -> list[tuple[float, ...]]:
    """Return the seconds of lower and of unpack in each of `STEPS` steps from `state` on."""
    lowering = TorchLowering(state)
    spent: list[tuple[float, ...]] = []
    for _ in range(STEPS):
        plan = schedule(state)
        samples = driver.run(plan)
        packed = lowering.prepare(plan, samples)
        begin = process_time()
        lowering.lower(plan)
        lowered = process_time()
        lowering.unpack(plan, packed)
        spent.append((lowered - begin, process_time() - lowered))
        state = commit(state, samples)
    return spent


def measure(
    strategy: str = "multi_bd",
    batches: tuple[int, ...] = BATCHES,
    lengths: tuple[int, ...] = LENGTHS,
) -> Iterator[HostCost]:
    """Yield a row for each regime, length and batch.

    Each regime and length runs in a fresh process, whose memory is not fragmented.
    """
    fresh = ProcessPoolExecutor(max_workers=1, max_tasks_per_child=1, mp_context=get_context("spawn"))
    with fresh as processes:
        groups = [processes.submit(measure_group, strategy, r, n, batches) for r in REGIMES for n in lengths]
        for group in groups:
            yield from group.result()


def measure_group(strategy: str, regime: Regime, length: int, batches: tuple[int, ...]) -> list[HostCost]:
    """Return the rows of one regime and length, one per batch."""
    script = SCRIPTS[strategy]
    runs = [(build(strategy, regime, length, batch), script) for batch in batches]
    rows: list[HostCost] = []
    for batch, steps in zip(batches, least_times(runs), strict=True):
        planned, committed, lowered, unpacked = mean_us(steps, batch)
        rows.append(HostCost(strategy, regime, length, batch, planned, lowered, unpacked, committed))
    return rows


def least_times(runs: list[tuple[State, StrategyScript]]) -> list[list[tuple[float, ...]]]:
    """Return, for each run and step, the seconds of schedule, commit, lower and unpack.

    Each step counts with its minimum over `REPETITIONS` interleaved repetitions, which excludes
    other load. Core and lowering are timed in turns rather than in the same steps, because each
    would evict the other from the processor's caches. Garbage collection is disabled.
    """
    least = [[(float("inf"),) * 4] * STEPS for _ in runs]
    gc.collect()
    gc.disable()
    try:
        for _ in range(REPETITIONS):
            for place, (state, script) in enumerate(runs):
                core = measure_core(state, script.driver(Random(0)))
                lowering = measure_lowering(state, script.driver(Random(0)))
                times = [one + two for one, two in zip(core, lowering, strict=True)]
                least[place] = [tuple(map(min, one, two)) for one, two in zip(least[place], times, strict=True)]
    finally:
        gc.enable()
    return least


def mean_us(steps: list[tuple[float, ...]], batch: int) -> list[float]:
    """Return microseconds per request of each part of a step."""
    return [round(1e6 * sum(part) / (len(steps) * batch), 2) for part in zip(*steps, strict=True)]


def memory_per_token(tokens: int = 1 << 20, length: int = 1 << 15) -> float:
    """Return the bytes per token by which a state of `tokens` committed tokens grows this process.

    Ids are drawn from the whole vocabulary, pages hold 32 positions, every full page has a prefix
    key. Run this in a fresh process: reused memory would not be counted.
    """
    random = Random(0)
    build("multi_bd", "generated", 128, 1)  # excludes imports and caches of a first use
    gc.collect()
    before = resident_bytes()
    state = build("multi_bd", "generated", length, tokens // length, random)
    gc.collect()
    stored = sum(sequence.stored for sequence in state.running)
    return (resident_bytes() - before) / stored


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * sysconf("SC_PAGE_SIZE")
