"""`dlstep bench decode`: the time of a model's decode steps, as a table or as JSON.

A plan can be run any number of times, so each measured step is repeated. Its time is the minimum over the repetitions.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from statistics import fmean
from time import perf_counter
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from ..core import Request, SamplingParams, State, add, commit, schedule
from .options import Namespace, json_text

if TYPE_CHECKING:
    from ..engine.loader import LoadedEngine

EXAMPLES = """dlstep bench decode
dlstep bench decode --model /path/to/checkpoint --device cuda --json"""
BATCHES = (1, 8, 32)
EVERY = 4  # of the steps at which all requests sample, one is timed
PARAMS = SamplingParams(max_tokens=96, ignore_eos=True)
Row = dict[str, float]


@dataclass(frozen=True)
class BenchCommand:
    """Measure the time of a model's decode steps at batch 1, 8 and 32, from planning a step to its new state."""

    _: KW_ONLY
    model: str = "tiny-bd"
    """Embedded model or checkpoint folder."""
    device: str = "cpu"
    """cpu or cuda."""
    json: bool = False
    """Print a JSON list of rows, and nothing else, on stdout."""


COMMAND = BenchCommand


def run(options: Namespace) -> int:
    """Print a row for each batch size."""
    from ..engine.config import EngineConfig
    from ..engine.loader import load_engine

    rows = measure_decode(load_engine(EngineConfig(options.model, device=options.device, max_num_reqs=max(BATCHES))))
    if options.json:
        print(json_text(rows))
        return 0
    table = Table(*rows[0], box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(f"{value:.2f}" if isinstance(value, float) else str(value) for value in row.values()))
    Console().print(table)
    return 0


def measure_decode(engine: "LoadedEngine", batch_sizes: Sequence[int] = BATCHES, *, repetitions: int = 30) -> list[Row]:
    """Return one row for each batch size, with the strategy of the engine.

    Besides `batch`, a row holds means over steps: `rows`, the rows fed, and `step_us`, the microseconds of a step.
    """
    return [_measured(engine, batch_size, repetitions) for batch_size in batch_sizes]


def _measured(engine: "LoadedEngine", batch_size: int, repetitions: int) -> Row:
    """Return the row of a batch size. Of the steps in which all requests sample, every fourth is timed."""
    state, full, rows, seconds = _first_state(engine, batch_size), 0, list[int](), list[float]()
    while not state.done:
        plan = schedule(state)
        if len(plan.spans) == batch_size and all(span.wanted.sampled for span in plan.spans):
            full += 1
            if full % EVERY == 1:
                rows.append(sum(len(span.rows.tokens) for span in plan.spans))
                seconds.append(min(_seconds(engine, state) for _ in range(repetitions)))
        state = commit(state, engine.driver.run(plan))
    return {"batch": batch_size, "rows": fmean(rows), "step_us": 1e6 * fmean(seconds)}


def _seconds(engine: "LoadedEngine", state: State) -> float:
    """Return the seconds of a step."""
    start = perf_counter()
    commit(state, engine.driver.run(schedule(state)))
    return perf_counter() - start


def _first_state(engine: "LoadedEngine", batch_size: int) -> State:
    """Return a state with as many requests."""
    from ..text.prompts import encode
    from ..tiny import problems

    state = engine.first
    for number, problem in enumerate(problems(batch_size)):
        state = add(state, Request(number, encode(engine, problem.prompt), PARAMS))
    return state
