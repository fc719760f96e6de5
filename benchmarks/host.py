"""Host cost per request and step: schedule, lower, unpack, commit, with a scripted driver; no model is needed.

There are at most four blocks of 32 in flight and pages of 32; a step unmasks two tokens (with `_full`
nearly four, one in each block). Canvases have 256 positions and never settle. Long answers are first
built by unmasking whole blocks. Generating samples is not timed. Each step counts with its minimum processor
time over several interleaved repetitions. Times are microseconds per request and step.
"""

import gc
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import chain
from multiprocessing import get_context
from os import sysconf
from pathlib import Path
from random import Random
from time import process_time
from typing import Any

import torch
from torch import Tensor

from dlstep import strategies
from dlstep.core import Admission, Config, Plan, Request, Samples, SamplingParams, State, add, commit, init, schedule
from dlstep.core.automaton import Automaton
from dlstep.core.lifecycle import largest_fed_end
from dlstep.driver.lowering import LoweringTarget, Placed, gather, lower, unpack, with_masks
from dlstep.driver.tables import MaskTable, PageTables
from dlstep.testing.scripted import ScriptedDriver

from . import entry
from .scripts import BLOCK, EOS, SCRIPTS, StrategyScript

BATCHES = (1, 8, 32, 128, 256)
LENGTHS = (512, 4096, 32768)
REGIMES = ("prompt", "generated")  # what a sequence consists of when the measurement begins
PAGE = 32
SAMPLED_HEAD = 256  # positions left to decode during the measurement
REPETITIONS = 5
STEPS = 32  # per measurement: two blocks, so that opening, sealing and storing them is included
TOKENS = 1 << 20  # of the state whose memory is measured


class TorchLowering:
    """The host side of the torch driver for plans that continue from `state`, without the network.

    Excludes the dense mask of plain torch attention, which kernels do not need.
    """

    def __init__(self, state: State) -> None:
        config = state.config
        self._tables = PageTables(config)
        running = [(sequence.request.seq_id, sequence.pages, sequence.storage.slot) for sequence in state.running]
        self._apply(Plan(state.step, state.cache_digest, (), admissions=tuple(Admission(*held) for held in running)))
        device = torch.device("cpu")
        masks = MaskTable(config.spec.vocab_size, device)
        self._target = LoweringTarget(config.page_size, config.spec.head_shift, (), device, torch.float32, masks)
        self._placed: Placed | None = None

    def _apply(self, plan: Plan) -> None:
        self._tables.apply(plan)

    def prepare(self, plan: Plan, samples: Samples) -> Tensor | None:
        """Apply ownership changes. Return the packed answer of a device, or None if nothing was sampled."""
        self._apply(plan)
        best, scored = plan.sample_spec.best, plan.sample_spec.scored
        parts: list[list[Iterable[float]]] = []
        for rows in samples.spans:
            part: list[Iterable[float]] = [rows.tokens, rows.probabilities, rows.entropies, rows.margins]
            part += [rows.best_ids[rank::best] for rank in range(best)]
            part += [rows.best_probabilities[rank::best] for rank in range(best)]
            part += [rows.noise, *[rows.scored_probabilities[place::scored] for place in range(scored)]]
            parts.append(part)
        columns = [list(chain.from_iterable(column)) for column in zip(*parts, strict=True)]
        filled = [column for column in columns if column]
        return torch.tensor(filled, dtype=torch.float32) if filled else None

    def lower(self, plan: Plan) -> None:
        """Create the tensors of the plan. No page may have changed its owner since the first plan."""
        gathered = gather(plan, self._tables, self._target, self._placed)
        self._placed = gathered.placed
        with_masks(lower(gathered, self._target), gathered, self._target)


def build(script: StrategyScript, regime: str, length: int, batch: int, constraint: Automaton | None = None) -> State:
    """Return a state of `batch` running requests of about `length` tokens, each in mid-answer."""
    limit = length + SAMPLED_HEAD + 64
    chosen: Any = strategies.load(script.strategy)  # untyped: each strategy has different fields
    value = chosen(**script.options)
    reach = largest_fed_end(value, limit)
    pages = -(-reach // PAGE) * batch
    config = Config(script.spec, PAGE, pages, max_model_len=limit, max_num_batched_tokens=batch * reach, max_num_reqs=batch)
    state = init(config, value)
    random = Random(0)
    prompt_length = length if regime == "prompt" else BLOCK
    shared = tuple(random.randrange(EOS) for _ in range(prompt_length - 1))
    for number in range(batch):  # different first tokens, so that no two requests share a page
        params = SamplingParams(max_tokens=limit - prompt_length)
        state = add(state, Request(number, (number, *shared), params, automaton=constraint))
    driver = script.filling(random)
    while min((sequence.progress.settled for sequence in state.running), default=0) < length - BLOCK:
        state = commit(state, driver.run(schedule(state)))
        assert not state.finished, "answers are filled before there is anything to measure"
    steady = script.driver(random)
    for _ in range(24):
        state = commit(state, steady.run(schedule(state)))
    return state


def measure_core(state: State, driver: ScriptedDriver) -> list[tuple[float, ...]]:
    """Return the seconds of schedule, with token masks, and of commit in each of `STEPS` steps from `state` on."""
    spent: list[tuple[float, ...]] = []
    for _ in range(STEPS):
        begin = process_time()
        plan = schedule(state)
        for span in plan.spans:
            tuple(span.wanted.masks)  # computed when they are read
        planned = process_time() - begin
        rows = driver.run(plan).spans
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
        unpack(plan, packed)
        spent.append((lowered - begin, process_time() - lowered))
        state = commit(state, samples)
    return spent


def least_times(runs: Sequence[tuple[State, StrategyScript]]) -> list[list[tuple[float, ...]]]:
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


def measure_group(name: str, regime: str, length: int, batches: tuple[int, ...]) -> list[dict[str, Any]]:
    """Return the rows of one regime and length, one per batch."""
    runs = [(build(SCRIPTS[name], regime, length, batch), SCRIPTS[name]) for batch in batches]
    rows: list[dict[str, Any]] = []
    for batch, steps in zip(batches, least_times(runs), strict=True):
        planned, committed, lowered, unpacked = mean_us(steps, batch)
        costs = {"schedule_us": planned, "lower_us": lowered, "unpack_us": unpacked, "commit_us": committed}
        rows.append({"strategy": name, "regime": regime, "length": length, "batch": batch, **costs})
    return rows


def measure(
    strategy: str, batches: tuple[int, ...] = BATCHES, lengths: tuple[int, ...] = LENGTHS, *, memory: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield a row for each regime, length and batch, each group in a fresh process, whose memory is not fragmented."""
    if memory:
        yield {"tokens": TOKENS, "bytes_per_token": memory_per_token()}
        return
    names = SCRIPTS if strategy == "all" else (strategy,)
    fresh = ProcessPoolExecutor(max_workers=1, max_tasks_per_child=1, mp_context=get_context("spawn"))
    with fresh as processes:
        groups = [processes.submit(measure_group, n, r, length, batches) for n in names for r in REGIMES for length in lengths]
        for group in groups:
            yield from group.result()


def memory_per_token() -> float:
    """Return the bytes per token by which a state of `TOKENS` committed tokens grows this process.

    Ids are drawn from the whole vocabulary, pages hold 32 positions, every full page has a prefix
    key. Run this in a fresh process: reused memory would not be counted.
    """
    script, length = SCRIPTS["multi_bd"], 1 << 15
    build(script, "generated", 128, 1)  # excludes imports and caches of a first use
    gc.collect()
    before = resident_bytes()
    state = build(script, "generated", length, TOKENS // length)
    gc.collect()
    return (resident_bytes() - before) / sum(sequence.storage.stored for sequence in state.running)


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    entry.run(
        __doc__,
        measure,
        strategy=("multi_bd", f"all, or one of {', '.join(SCRIPTS)}."),
        batches=(BATCHES, "Requests at a time."),
        lengths=(LENGTHS, "Tokens of a sequence."),
        memory=(False, f"Instead: bytes per token of a state of {TOKENS} tokens."),
    )
