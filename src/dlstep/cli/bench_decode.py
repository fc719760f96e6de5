"""`dlstep bench decode`: the time of a model's decode steps, as a table or as JSON.

A plan can be run any number of times, so each measured step is repeated. The parts of a step are timed
together; each figure is the minimum over repetitions, averaged over steps.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from statistics import fmean
from time import perf_counter
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from ..core import Request, SamplingParams, State, add, commit, schedule
from .options import Namespace, json_text

if TYPE_CHECKING:
    from ..engine.loader import LoadedEngine
    from ..models.networks import PagedNetwork

EXAMPLES = """dlstep bench decode
dlstep bench decode --model /path/to/checkpoint --device cuda --json"""
BATCHES = (1, 8, 32)
EVERY = 4  # of the steps at which all requests sample, one is timed
PARAMS = SamplingParams(max_tokens=96, ignore_eos=True)
Row = dict[str, float]


@dataclass(frozen=True)
class BenchCommand:
    """Measure a model's decode steps at batch 1, 8 and 32, and the share outside the network's forward pass."""

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

    # The parts of captured graphs cannot be timed.
    config = EngineConfig(options.model, device=options.device, enforce_eager=True, max_num_reqs=max(BATCHES))
    rows = measure_decode(load_engine(config))
    if options.json:
        print(json_text(rows))
        return 0
    table = Table(*rows[0], box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(f"{value:.2f}" if isinstance(value, float) else str(value) for value in row.values()))
    Console().print(table)
    return 0


class _ClockedForward:
    """The forward pass of a network; `seconds` is the duration of its last call."""

    seconds = 0.0

    def __init__(self, network: "PagedNetwork") -> None:
        self._forward, self._device = network.forward, network.model.device
        network.forward = self  # pyright: ignore[reportAttributeAccessIssue]

    def __call__(self, *values: Any) -> Any:
        """Run the forward pass, and wait for its end."""
        import torch

        start = perf_counter()
        answer = self._forward(*values)
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        self.seconds = perf_counter() - start
        return answer


def measure_decode(engine: "LoadedEngine", batch_sizes: Sequence[int] = BATCHES, *, repetitions: int = 30) -> list[Row]:
    """Return one row for each batch size, with the strategy of the engine.

    Its columns: `batch`, `rows` fed per step, `step_us` (schedule, lower, forward, sample, unpack, commit),
    `forward_us` (body and head with attention) and `outside_share` (share of the step outside the
    forward pass).
    """
    from ..driver import TorchDriver

    assert isinstance(engine.driver, TorchDriver), "the engine was loaded from a folder"
    clocked = _ClockedForward(engine.driver.network)
    return [_measured(engine, clocked, batch_size, repetitions) for batch_size in batch_sizes]


def _measured(engine: "LoadedEngine", clocked: _ClockedForward, batch_size: int, repetitions: int) -> Row:
    """Return the row of a batch size: of the steps at which all requests sample, every fourth is timed."""
    state, full, measured = _first_state(engine, batch_size), 0, list[tuple[float, ...]]()
    while not state.done:
        plan = schedule(state)
        if len(plan.spans) == batch_size and all(span.wanted.sampled for span in plan.spans):
            full += 1
            if full % EVERY == 1:
                times = [_times(engine, clocked, state) for _ in range(repetitions)]
                measured.append((*map(min, zip(*times, strict=True)), sum(len(span.rows.tokens) for span in plan.spans)))
        state = commit(state, engine.driver.run(plan))
    step, forward, outside, rows = map(fmean, zip(*measured, strict=True))
    row = {"batch": batch_size, "rows": rows, "step_us": 1e6 * step, "forward_us": 1e6 * forward}
    return row | {"outside_share": outside / step}


def _times(engine: "LoadedEngine", clocked: _ClockedForward, state: State) -> tuple[float, float, float]:
    """Return the seconds of a step, of its forward pass, and of the step without its forward pass."""
    start = perf_counter()
    commit(state, engine.driver.run(schedule(state)))
    step = perf_counter() - start
    return step, clocked.seconds, step - clocked.seconds


def _first_state(engine: "LoadedEngine", batch_size: int) -> State:
    """Return a state with as many requests."""
    from ..text.prompts import encode
    from ..tiny import problems

    state = engine.first
    for number, problem in enumerate(problems(batch_size)):
        state = add(state, Request(number, encode(engine, problem.prompt), PARAMS))
    return state
