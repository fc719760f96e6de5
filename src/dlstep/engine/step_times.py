"""Measure decode steps: each is timed repeatedly, since a plan can be run any number of times.

The parts of a step are timed together; each figure is the minimum over repetitions, averaged over steps.
"""

from collections.abc import Sequence
from statistics import fmean
from time import perf_counter

import torch

from .. import strategies
from ..core import Config, Request, SamplingParams, State, Strategy, add, commit, init, options_of, schedule, with_options
from ..driver import TorchDriver
from ..models import Checkpoint
from ..models.networks import Answer, Batch, Memory, PagedNetwork, paged
from ..tiny import problems

BATCHES = (1, 8, 32)
PAGE_SIZE = 32
ANSWER_TOKENS = 96
EVERY = 4  # of these steps, one is timed
Row = dict[str, float]


class _ClockedForward:
    """The forward pass of a network; `seconds` is the duration of its last call."""

    seconds = 0.0

    def __init__(self, network: PagedNetwork) -> None:
        self._forward, self._device = network.forward, network.model.device
        network.forward = self  # pyright: ignore[reportAttributeAccessIssue]

    def __call__(self, batch: Batch, memory: Memory) -> Answer | None:
        """Run the forward pass, and wait for its end."""
        start = perf_counter()
        answer = self._forward(batch, memory)
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        self.seconds = perf_counter() - start
        return answer


def measure_decode(checkpoint: Checkpoint, batch_sizes: Sequence[int] = BATCHES, *, repetitions: int = 30) -> list[Row]:
    """Return one row for each batch size, with the strategy that the checkpoint names.

    Its columns: `batch`, `rows` fed per step, `step_us` (schedule, lower, forward, sample, unpack, commit),
    `forward_us` (body and head with attention) and `outside_share` (share of the step outside the
    forward pass).
    """
    return [_measured(checkpoint, batch_size, repetitions) for batch_size in batch_sizes]


def _measured(checkpoint: Checkpoint, batch_size: int, repetitions: int) -> Row:
    """Return the row of a batch size: of the steps at which all requests sample, every fourth is timed."""
    network = paged(checkpoint.network, checkpoint.spec)
    clocked, state = _ClockedForward(network), _first_state(checkpoint, batch_size)
    # The parts of captured graphs cannot be timed.
    driver = TorchDriver(checkpoint, state.config, enforce_eager=True, network=network)
    rows, steps, outsides, forwards, full = list[int](), list[float](), list[float](), list[float](), 0
    while not state.done:
        plan = schedule(state)
        if len(plan.spans) == batch_size and all(span.sampled for span in plan.spans):
            full += 1
            if full % EVERY == 1:
                times = [_times(driver, clocked, state) for _ in range(repetitions)]
                step, outside, forward = map(min, zip(*times, strict=True))
                steps.append(step)
                outsides.append(outside)
                forwards.append(forward)
                rows.append(sum(len(span.tokens) for span in plan.spans))
        state = commit(state, driver.run(plan))
    return {
        "batch": batch_size,
        "rows": fmean(rows),
        "step_us": 1e6 * fmean(steps),
        "forward_us": 1e6 * fmean(forwards),
        "outside_share": sum(outsides) / sum(steps),
    }


def _times(driver: TorchDriver, clocked: _ClockedForward, state: State) -> tuple[float, float, float]:
    """Return the seconds of a step, of the step without its forward pass, and of the forward pass."""
    start = perf_counter()
    commit(state, driver.run(schedule(state)))
    step = perf_counter() - start
    return step, step - clocked.seconds, clocked.seconds


def _own_strategy(checkpoint: Checkpoint) -> Strategy:
    """Return the strategy that the checkpoint names, with the checkpoint's options."""
    strategy = strategies.PLUGINS.value(checkpoint.description.decoding_strategy or "multi_bd")
    known = options_of(strategy)
    return with_options(strategy, {name: value for name, value in checkpoint.description.options.items() if name in known})


def _first_state(checkpoint: Checkpoint, batch_size: int) -> State:
    """Return a state with as many requests."""
    length = min(checkpoint.description.max_model_len, 384)
    pages = batch_size * (-(-length // PAGE_SIZE) + 1)
    state = init(Config(checkpoint.spec, PAGE_SIZE, pages, length, 64 * length, batch_size), _own_strategy(checkpoint))
    params = SamplingParams(max_tokens=ANSWER_TOKENS, ignore_eos=True)
    for number, problem in enumerate(problems(batch_size)):
        prompt = checkpoint.description.tokenizer.encode(problem.prompt, add_special_tokens=False)
        state = add(state, Request(number, tuple(prompt), params))
    return state
