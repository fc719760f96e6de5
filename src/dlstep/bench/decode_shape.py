"""Steady decoding in the shape of a published checkpoint: step time against the device's limits.

Prompts of random tokens are prefilled for real. Every later step is the engine's own, with two
untimed changes: random ids are fed instead of masks, and the network's unpacked samples are
replaced by scripted ones (`script`).
"""

import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any

import torch

from dlstep_kernels.choice import has_kernels

from ..core import Config, Plan, Request, Samples, SamplingParams, State, Strategy, add, commit, init, probe, schedule
from ..core.driver import run_prepared
from ..core.lifecycle import farthest
from ..distributed.control_channel import connect
from ..distributed.rank_zero import Forward
from ..distributed.ranks import ALONE, Ranks
from ..driver import TorchDriver
from ..driver.lowering import unpack
from ..models import Checkpoint
from ..models.compiled import compile_layers
from .busy import DeviceBusyTime, busy
from .ceilings import Ceilings, measure_ceilings
from .roofline import Network, least_us, network_of
from .script import PACED_BY_OPTIONS, Pace, unmasked
from .shapes import Shape, random_checkpoint, shortened

BATCHES = (1, 8, 32)
CONTEXT = 4096
TOKENS_PER_FORWARD = 2.5
PAGE_SIZE = 32
STEPS = 32  # measured steps, or a whole canvas; as many after them are profiled
WARM = 3  # times as many steps before them warm up, so that graphs are captured
ROWS = 8192  # rows of a prefill pass


@dataclass(frozen=True, slots=True)
class DecodeLoad:
    """The decode to measure: `batch` requests of `context` tokens, `tokens_per_forward` unmasked per request and step.

    `buffer_size` is the number of blocks in flight; None: the shape's.
    """

    batch: int
    context: int = CONTEXT
    tokens_per_forward: float = TOKENS_PER_FORWARD
    steps: int = STEPS
    buffer_size: int | None = None


@dataclass(frozen=True, slots=True)
class Decoded:
    """A row of the table; times are mean microseconds per step.

    `rows` are fed per step, `captures` are graphs captured in the measured steps, `kinds` and
    `launches` describe the device's kernels. `host_us` is schedule, gathering, unpacking and commit,
    without what is prepared while the device works. `device_us` is the time in which the device
    works, `host_share` the share in which it waits; `queued_us` is a forward pass with others queued
    after it. These are None without a CUDA device. `roofline_us` is the minimum time at the measured
    ceilings, `ratio` = step / roofline.
    """

    shape: str
    batch: int
    context: int
    rows: float
    step_us: float
    roofline_us: float
    ratio: float
    device_us: float | None
    queued_us: float | None
    host_share: float | None
    host_us: float
    tokens_per_step: float
    tokens_per_s: float
    slowest_us: float
    captures: int
    kinds: dict[str, float]
    launches: int | None
    copy_gb_s: float
    matmul_tflop_s: float
    quantization: str | None = None
    buffer_size: int | None = None
    weights_gb: float = 0.0


class PacedDriver:
    """A driver that times the host parts of each plan, and returns scripted samples if `scripted`."""

    def __init__(self, driver: TorchDriver, pace: Pace, *, scripted: bool) -> None:
        self.driver, self.pace, self._scripted = driver, pace, scripted
        self.host_s = 0.0
        self.script_s = 0.0
        ranks = driver.network.ranks
        self._channel = connect(ranks) if ranks.several else None

    def run_overlapped(self, plan: Plan, meanwhile: Callable[[], None]) -> Samples:
        """Return the network's samples, or scripted ones instead. Call `meanwhile` as a `TorchDriver` does."""
        check = self._announce(plan)

        def check_then_work() -> None:
            if check is not None:
                check()
            meanwhile()

        start = perf_counter()
        self.driver.apply_ownership(plan)
        forwards = self.driver.gather(plan)
        gathered = perf_counter()
        pending = self.driver.submit(forwards, check_then_work)
        marks = [span.mark() for span in plan.spans]
        packed = pending.wait()
        answered = perf_counter()
        samples = unpack(plan, packed, marks)
        unpacked = perf_counter()
        self.host_s += gathered - start + unpacked - answered
        if self._scripted:
            samples = self.pace.samples(plan)
        self.script_s += perf_counter() - unpacked
        self.driver.mark_current(samples)
        return samples

    def _announce(self, plan: Plan) -> Callable[[], None] | None:
        """Announce a forward pass to the other ranks, as `RankZeroDriver` does.

        Return the check that all ranks have equal cache digests; None with a single rank.
        """
        if self._channel is None:
            return None
        if self._channel.ranks.rank:
            self._channel.receive()
        else:
            self._channel.send(Forward(0, (), (), ()))
        return self._channel.check(f"step {plan.step}", plan.cache_digest)


class DecodeRow:
    """A running decode: `state` and its driver."""

    def __init__(
        self, checkpoint: Checkpoint, strategy: Strategy, load: DecodeLoad, *, enforce_eager: bool, captures: bool = True
    ) -> None:
        self.name = checkpoint.description.name
        self.state = _filled(checkpoint, strategy, load)
        driver = TorchDriver(checkpoint, self.state.config, enforce_eager=enforce_eager)
        if captures:
            driver.capture(strategy)
        pace = Pace(load.tokens_per_forward, checkpoint.spec.vocab_size)
        self.driver = PacedDriver(driver, pace, scripted=checkpoint.description.decoding_strategy not in PACED_BY_OPTIONS)

    def step(self) -> tuple[Plan, float, float]:
        """Run a step. Return its plan, its seconds without the script, and those of schedule and commit."""
        before = self.driver.script_s
        start = perf_counter()
        plan = schedule(self.state)
        planned = perf_counter()
        plan = self.driver.pace.fed(plan, self.state.config.spec.mask_id)
        begin = perf_counter()
        samples, prepared = run_prepared(self.driver.run_overlapped, self.state, plan)
        ran = perf_counter()
        self.state = commit(self.state, samples, prepared)
        done = perf_counter()
        own = planned - start + done - ran
        return plan, own + ran - begin - (self.driver.script_s - before), own

    def queued_us(self, count: int) -> float:
        """Return microseconds of the next forward pass, queued `count` times. No step may follow."""
        driver = self.driver.driver
        plan = self.driver.pace.fed(schedule(self.state), self.state.config.spec.mask_id)
        driver.apply_ownership(plan)
        forwards = driver.gather(plan)
        for _ in range(2):  # a new size is captured when it occurs for the second time
            driver.submit(forwards).wait()
        pending = driver.submit(forwards)
        pending.wait()
        start = perf_counter()
        for _ in range(count):
            pending = driver.submit(forwards)
        pending.wait()
        return 1e6 * (perf_counter() - start) / count

    def prefill(self) -> None:
        """Step until every request has sampled."""
        while self.state.waiting or not all(sequence.steps for sequence in self.state.running):
            self.step()

    def unmasked(self) -> int:
        """Return the number of unmasked positions of all requests."""
        return sum(map(unmasked, self.state.running))


def measure_shape(
    shape: Shape,
    loads: Sequence[DecodeLoad],
    *,
    device: torch.device,
    dtype: torch.dtype,
    layers: int | None = None,
    enforce_eager: bool = False,
    compiled: bool | None = None,
    trace: Path | None = None,
    ceilings: Ceilings | None = None,
    ranks: Ranks = ALONE,
    quantization: str | None = None,
) -> Iterator[Decoded]:
    """Yield one row for each load.

    `layers` limits the number of layers (None: all). They are `compiled` (None: if there are
    kernels). `ceilings` are measured if None. Steps after the measured ones are profiled, those of
    the last load into `trace`. With several `ranks`, each calls this with its own device; rows
    describe its share.
    """
    ceilings = ceilings or measure_ceilings(device, dtype)
    shape = shortened(shape, layers)
    checkpoint = random_checkpoint(shape, device, dtype, ranks, quantization)
    if compiled if compiled is not None else has_kernels(device):
        compile_layers(checkpoint.network)
    size = sum(parameter.numel() * parameter.itemsize for parameter in checkpoint.network.parameters())
    for row in measure_loads(checkpoint, shape, loads, ceilings=ceilings, enforce_eager=enforce_eager, trace=trace):
        yield replace(row, quantization=quantization, weights_gb=size / 1e9)


def measure_loads(
    checkpoint: Checkpoint,
    shape: Shape,
    loads: Sequence[DecodeLoad],
    *,
    ceilings: Ceilings,
    enforce_eager: bool = False,
    captures: bool = True,
    trace: Path | None = None,
) -> Iterator[Decoded]:
    """Yield the rows of a loaded network. With `captures`, all graphs are captured first."""
    network = network_of(checkpoint.network, checkpoint.ranks.size)
    for number, load in enumerate(loads, start=1):
        strategy = shape.strategy(load.tokens_per_forward, load.buffer_size)
        cycle = getattr(strategy, "max_denoising_steps", 0)
        load = replace(load, steps=cycle + 1) if cycle else load  # one more to encode the canvas
        decode = DecodeRow(checkpoint, strategy, load, enforce_eager=enforce_eager, captures=captures)
        yield _measured(decode, network, load, ceilings, trace if number == len(loads) else None)
        del decode
        if checkpoint.network.device.type == "cuda":
            torch.cuda.empty_cache()


def _filled(checkpoint: Checkpoint, strategy: Strategy, load: DecodeLoad) -> State:
    """Return a state with all prompts waiting and answers long enough for the measurement."""
    spec = checkpoint.spec
    window = strategy.atom(probe(spec))
    prefills = load.batch * (load.context // ROWS + 1)
    answer = round(((WARM + 2) * load.steps + prefills + 8) * load.tokens_per_forward) + 2 * window + load.context // 8
    whole = strategy.atom(Request(0, (0,) * load.context, SamplingParams(max_tokens=answer))) >= load.context
    length = max(2, load.context - answer) if whole else load.context
    limit = length + answer
    reach = farthest(strategy, limit)
    rows = max(ROWS, load.batch * 2 * window, reach)
    config = Config(spec, PAGE_SIZE, load.batch * -(-reach // PAGE_SIZE), limit, rows, load.batch)
    state, random = init(config, strategy), Random(0)
    params = SamplingParams(max_tokens=answer, ignore_eos=True)
    for number in range(load.batch):
        state = add(state, Request(number, tuple(random.choices(range(spec.vocab_size - 2), k=length)), params))
    return state


def _measured(decode: DecodeRow, network: Network, load: DecodeLoad, ceilings: Ceilings, trace: Path | None) -> Decoded:
    """Return the figures of one load."""
    decode.prefill()
    for _ in range(WARM * load.steps):
        decode.step()
    before, captured = decode.unmasked(), decode.driver.driver.graph_count
    done = _timed_steps(decode, load.steps)
    tokens, captures = decode.unmasked() - before, decode.driver.driver.graph_count - captured
    count = len(done)
    step_us = 1e6 * sum(seconds for _, seconds, _ in done) / count
    roofline_us = sum(least_us(network, plan, ceilings) for plan, _, _ in done) / count
    host_us = 1e6 * (decode.driver.host_s + sum(own for _, _, own in done)) / count
    on_device = decode.driver.driver.network.model.device.type == "cuda"
    spent = busy(decode.step, min(load.steps, STEPS), trace) if on_device or trace else None
    return Decoded(
        shape=decode.name,
        batch=load.batch,
        context=load.context,
        buffer_size=load.buffer_size,
        rows=sum(len(span.tokens) for plan, _, _ in done for span in plan.spans) / count,
        step_us=step_us,
        roofline_us=roofline_us,
        ratio=step_us / roofline_us,
        queued_us=decode.queued_us(load.steps) if on_device else None,
        host_us=host_us,
        tokens_per_step=tokens / count / load.batch,
        tokens_per_s=1e6 * tokens / count / step_us,
        slowest_us=1e6 * max(seconds for _, seconds, _ in done),
        captures=captures,
        copy_gb_s=ceilings.bytes_per_s / 1e9,
        matmul_tflop_s=ceilings.flops_per_s / 1e12,
        **_device_figures(spent, step_us),
    )


def _timed_steps(decode: DecodeRow, count: int) -> list[tuple[Plan, float, float]]:
    """Run steps without garbage collection. Return each step's plan, seconds, and host seconds."""
    gc.collect()
    gc.disable()
    try:
        decode.driver.host_s = 0.0
        return [decode.step() for _ in range(count)]
    finally:
        gc.enable()


def _device_figures(spent: DeviceBusyTime | None, step_us: float) -> dict[str, Any]:
    """Return the fields of a row that a profile fills."""
    if spent is None:
        return {"device_us": None, "host_share": None, "kinds": {}, "launches": None}
    share = max(0.0, 1.0 - spent.us / step_us)
    return {"device_us": spent.us, "host_share": share, "kinds": spent.kinds, "launches": spent.launches}
