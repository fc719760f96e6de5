"""Compare a decode step with its forward pass, and with a plain dense forward pass of the same size.

States come from real decodes, and each is timed repeatedly, since a plan can be run any number of
times. All parts are timed in turn within a repetition; each figure is the minimum over repetitions,
averaged over states.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from time import perf_counter
from typing import NamedTuple

import torch
from transformers import DynamicCache, PreTrainedModel

from .. import strategies
from ..core import Config, Plan, Request, SamplingParams, State, Strategy, add, commit, init, options_of, schedule, with_options
from ..driver import TorchDriver
from ..engine.decode import Decode
from ..models import Checkpoint
from ..models.networks import Answer, Batch, Memory, PagedNetwork, paged
from ..models.shapes import kv_shapes
from ..models.transformers_internals import cache_argument
from ..tiny import problems

BATCHES = (1, 8, 32)
PAGE_SIZE = 32
ANSWER_TOKENS = 96
Row = dict[str, float]


class _Times(NamedTuple):
    """Seconds of a step, of the step without its forward pass, of the forward pass, and of a plain one."""

    step: float
    outside: float
    forward: float
    plain: float


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


def measure_decode(
    checkpoint: Checkpoint, batch_sizes: Sequence[int] = BATCHES, *, states: int = 4, repetitions: int = 30
) -> list[Row]:
    """Return one row for each batch size, with the strategy that the checkpoint names.

    Its columns: `batch`, `rows` fed per step, `step_us` (schedule, lower, forward, sample, unpack, commit),
    `forward_us` (body and head with attention), `outside_share` (share of the step outside the
    forward pass), `plain_us` (a dense transformers forward pass of as many rows and as much
    context) and `ratio` (step / plain).
    """
    plain = deepcopy(checkpoint.network)
    plain.set_attn_implementation("sdpa")
    table: list[Row] = []
    for batch_size in batch_sizes:
        network = paged(checkpoint.network, checkpoint.spec)
        clocked = _ClockedForward(network)
        driver, starts = _decoding(checkpoint, network, batch_size, states)
        times: list[_Times] = []
        rows = 0
        for begin, reached in starts:
            # Replay the decode from its start, so that the device holds what this state needs.
            state = _walk(driver, begin, reached)
            plan = schedule(state)
            rows += sum(len(span.tokens) for span in plan.spans)
            times.append(_time(driver, clocked, state, _plain_forward(plain, plan), repetitions))
        step, outside, forward, plain_s = map(sum, zip(*times, strict=True))
        scale = 1e6 / len(times)
        table.append(
            {
                "batch": batch_size,
                "rows": rows / len(times),
                "step_us": step * scale,
                "forward_us": forward * scale,
                "outside_share": outside / step,
                "plain_us": plain_s * scale,
                "ratio": step / plain_s,
            }
        )
    return table


def _own_strategy(checkpoint: Checkpoint) -> Strategy:
    """Return the strategy that the checkpoint names, with the checkpoint's options."""
    strategy = strategies.PLUGINS.value(checkpoint.description.decoding_strategy or "multi_bd")
    known = options_of(strategy)
    return with_options(strategy, {name: value for name, value in checkpoint.description.options.items() if name in known})


def _decoding(
    checkpoint: Checkpoint, network: PagedNetwork, batch_size: int, states: int
) -> tuple[TorchDriver, list[tuple[State, int]]]:
    """Return a driver, and `states` evenly spread steps at which all requests sample, each with the first state."""
    length = min(checkpoint.description.max_model_len, 384)
    pages = batch_size * (-(-length // PAGE_SIZE) + 1)
    config = Config(checkpoint.spec, PAGE_SIZE, pages, length, 64 * length, batch_size)
    begin = init(config, _own_strategy(checkpoint))
    params = SamplingParams(max_tokens=ANSWER_TOKENS, ignore_eos=True)
    for number, problem in enumerate(problems(batch_size)):
        prompt = checkpoint.description.tokenizer.encode(problem.prompt, add_special_tokens=False)
        begin = add(begin, Request(number, tuple(prompt), params))
    # The parts of captured graphs cannot be timed.
    driver = TorchDriver(checkpoint, config, enforce_eager=True, network=network)
    state, good, step = begin, [], 0
    while not state.done:
        plan = schedule(state)
        state = commit(state, driver.run(plan))
        if len(plan.spans) == batch_size and step and all(span.sampled for span in plan.spans):
            good.append(step)
        step += 1
    chosen = [good[len(good) * (2 * number + 1) // (2 * states)] for number in range(states)]
    return driver, [(begin, step) for step in chosen]


def _walk(driver: TorchDriver, state: State, steps: int) -> State:
    decode = Decode(state, driver, prunes=False)
    for _ in range(steps):
        decode.step()
    return decode.state


def _time(
    driver: TorchDriver, clocked: _ClockedForward, state: State, plain: Callable[[], Callable[[], object]], repetitions: int
) -> _Times:
    """Return the minimum times over interleaved repetitions."""
    times: list[_Times] = []
    for _ in range(repetitions):
        start = perf_counter()
        commit(state, driver.run(schedule(state)))
        step, forward, call = perf_counter() - start, clocked.seconds, plain()
        start = perf_counter()
        call()
        times.append(_Times(step, step - forward, forward, perf_counter() - start))
    return _Times(*map(min, zip(*times, strict=True)))


def _plain_forward(network: PreTrainedModel, plan: Plan) -> Callable[[], Callable[[], object]]:
    """Return a factory of dense forward passes with as many rows and as much context as `plan`.

    The context is spread evenly over requests. It is given as past keys and values, visibility as a
    dense mask. Each call returns a new forward pass, because running one lengthens its past.
    """
    spans = plan.spans
    batch = len(spans)
    rows = -(-sum(len(span.tokens) for span in spans) // batch)
    past = -(-sum(span.start for span in spans) // batch)
    device, dtype = network.device, network.dtype
    size = spans[0].grid.size
    position = torch.arange(past, past + rows, device=device)
    until = past + ((position - past) // size + 1) * size
    mask = (torch.arange(past + rows, device=device) < until[:, None]).expand(batch, 1, -1, -1).contiguous()
    tokens = torch.zeros((batch, rows), dtype=torch.int64, device=device)
    past_keys_values = [
        torch.randn(2, batch, shape.kv_heads, past, shape.head_dim, dtype=dtype, device=device)
        for shape in kv_shapes(network.config)
    ]

    @torch.inference_mode()
    def prepared() -> Callable[[], object]:
        cache = DynamicCache(((keys, values) for keys, values in past_keys_values), config=network.config)

        @torch.inference_mode()
        def run() -> object:
            return network(
                input_ids=tokens,
                position_ids=position.expand(batch, -1),
                attention_mask=mask,
                **{cache_argument(network): cache},
                use_cache=True,
            )

        return run

    return prepared
