"""Steady decoding in the shape of a published checkpoint: step time against the device's limits.

The engine prefills prompts of random tokens. Every later step is a normal step of the engine with two
untimed changes: random ids are fed instead of masks, and scripted samples replace those of the
network after unpacking, so that engines can be compared on equal work.

Times are mean microseconds per step. `rows` are fed per step, `captures` are graphs captured in the
measured steps, `kinds` and `launches` describe the device's kernels. `host_us` is schedule,
gathering, unpacking and commit, without the work that overlaps with the device. `device_us` is the
time in which the device works, `host_share` the share of the step in which it waits, and `queued_us`
the time of a forward pass with others queued after it; these three are None without a CUDA device.
`roofline_us` is the minimum time at the measured ceilings, `ratio` = step / roofline.
"""

import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product, repeat
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any

import torch

from dlstep.core import (
    NO_SAMPLES,
    Config,
    Plan,
    Request,
    Samples,
    SamplingParams,
    Span,
    SpanSamples,
    State,
    Strategy,
    add,
    commit,
    init,
    prepare,
    probe,
    schedule,
)  # fmt: skip
from dlstep.core.lifecycle import largest_fed_end
from dlstep.distributed.control_channel import connect
from dlstep.distributed.rank_zero import Forward
from dlstep.distributed.ranks import ALONE, Ranks
from dlstep.driver import TorchDriver
from dlstep.driver.executor import Pending
from dlstep.driver.lowering import unpack
from dlstep.engine.devices import find_device
from dlstep.models import Checkpoint
from dlstep.models.compiled import compile_layers
from dlstep_kernels import has_kernels

from . import entry
from .device import Ceilings, busy, measure_ceilings
from .roofline import Network, least_us, network_of
from .scripts import unmasked
from .shapes import PACED_BY_OPTIONS, SHAPES, Shape, random_checkpoint, shortened

CONTEXT = 4096
TOKENS_PER_FORWARD = 2.5
PAGE_SIZE = 32
STEPS = 32  # measured steps, or a whole canvas; as many after them are profiled
WARM = 3  # times as many steps before them warm up, so that graphs are captured
ROWS = 8192  # rows of a prefill pass
SURE, UNSURE = 1.0, 0.25  # scripted probabilities


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


class Pace:
    """Scripted rows with `tokens_per_forward` confident positions per request and pass, on average.

    Fractions, and positions that did not fit, carry over to the next pass. The first sampled
    position is always confident, the others are random; tokens are random.
    """

    def __init__(self, tokens_per_forward: float, vocabulary: int, seed: int = 0) -> None:
        self._pace = tokens_per_forward
        self._vocabulary = vocabulary
        self._random = Random(seed)
        self._saved: dict[int, float] = {}

    def fed(self, plan: Plan, mask_id: int | None) -> Plan:
        """Return `plan` with random ids instead of masks, which would all be routed to the same experts."""
        if mask_id is None:
            return plan
        spans: list[Span] = []
        for span in plan.spans:
            tokens = tuple(map(self._other, span.rows.tokens, repeat(mask_id)))
            spans.append(replace(span, rows=replace(span.rows, tokens=tokens)))
        return replace(plan, spans=tuple(spans))

    def _other(self, token: int, mask_id: int) -> int:
        return self._random.randrange(self._vocabulary - 2) if token == mask_id else token

    def samples(self, plan: Plan) -> Samples:
        """Return the scripted samples for `plan`."""
        return Samples(
            plan, tuple([self._rows(span) if span.wanted.sampled else NO_SAMPLES for span in plan.spans]), checked=True
        )

    def _rows(self, span: Span) -> SpanSamples:
        count = len(span.wanted.sampled)
        saved = self._saved.get(span.who.id, 0.0) + self._pace
        sure = min(count, max(1, int(saved)))
        self._saved[span.who.id] = saved - sure
        probabilities = [UNSURE] * count
        probabilities[0] = SURE
        for place in self._random.sample(range(1, count), sure - 1):
            probabilities[place] = SURE
        # Special tokens are the last two ids.
        tokens = self._random.choices(range(self._vocabulary - 2), k=count)
        return SpanSamples(tuple(tokens), tuple(probabilities))


class PacedDriver:
    """A driver that times the host parts of each plan, and returns scripted samples if `scripted`."""

    def __init__(self, driver: TorchDriver, pace: Pace, *, scripted: bool) -> None:
        self.driver, self.pace, self._scripted = driver, pace, scripted
        self.host_s = 0.0
        self.script_s = 0.0
        ranks = driver.network.ranks
        self._channel = connect(ranks) if ranks.several else None

    def start(self, plan: Plan) -> "PacedSamples":
        """Start a plan, as a `TorchDriver` does."""
        check = self._announce(plan)
        start = perf_counter()
        self.driver.apply_ownership(plan)
        forwards = self.driver.gather(plan)
        self.host_s += perf_counter() - start
        if check is not None:
            check()
        pending = self.driver.submit(forwards)
        return PacedSamples(self, plan, pending, [span.mark() for span in plan.spans])

    def samples(self, plan: Plan, pending: Pending, marks: list[int]) -> Samples:
        """Return the network's samples, or scripted ones instead."""
        packed = pending.wait()
        answered = perf_counter()
        samples = unpack(plan, packed, marks)
        unpacked = perf_counter()
        self.host_s += unpacked - answered
        if self._scripted:
            samples = self.pace.samples(plan)
        self.script_s += perf_counter() - unpacked
        self.driver.mark_current(samples)
        return samples

    def meet(self) -> None:
        """Wait until all ranks have run their scripts, so that no step includes waiting for the script of another rank."""
        if self._channel is not None:
            self._channel.check("script", 0)()

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


@dataclass(frozen=True)
class PacedSamples:
    """The samples of a started plan."""

    driver: PacedDriver
    plan: Plan
    pending: Pending
    marks: list[int]

    def wait(self) -> Samples:
        """Return the samples once the device has computed them."""
        return self.driver.samples(self.plan, self.pending, self.marks)


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
        self.driver.meet()
        begin = perf_counter()
        pending = self.driver.start(plan)
        prepared = prepare(self.state, plan)
        samples = pending.wait()
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
    enforce_eager: bool = False,
    trace: Path | None = None,
    ceilings: Ceilings | None = None,
    ranks: Ranks = ALONE,
    quantization: str | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield one row for each load. Layers are compiled if there are kernels.

    `ceilings` are measured if None. Steps after the measured ones are profiled, those of the last
    load into `trace`. With several `ranks`, each calls this with its own device; rows describe its
    share.
    """
    ceilings = ceilings or measure_ceilings(device, dtype)
    checkpoint = random_checkpoint(shape, device, dtype, ranks, quantization)
    if has_kernels(device):
        compile_layers(checkpoint.network)
    size = sum(parameter.numel() * parameter.itemsize for parameter in checkpoint.network.parameters())
    for row in measure_loads(checkpoint, shape, loads, ceilings=ceilings, enforce_eager=enforce_eager, trace=trace):
        yield row | {"quantization": quantization, "weights_gb": size / 1e9}


def measure_loads(
    checkpoint: Checkpoint,
    shape: Shape,
    loads: Sequence[DecodeLoad],
    *,
    ceilings: Ceilings,
    enforce_eager: bool = False,
    captures: bool = True,
    trace: Path | None = None,
) -> Iterator[dict[str, Any]]:
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
    window = strategy.rows_at_once(probe(spec))
    prefills = load.batch * (load.context // ROWS + 1)
    answer = round(((WARM + 2) * load.steps + prefills + 8) * load.tokens_per_forward) + 2 * window + load.context // 8
    whole = strategy.rows_at_once(Request(0, (0,) * load.context, SamplingParams(max_tokens=answer))) >= load.context
    length = max(2, load.context - answer) if whole else load.context
    limit = length + answer
    reach = largest_fed_end(strategy, limit)
    rows = max(ROWS, load.batch * 2 * window, reach)
    config = Config(spec, PAGE_SIZE, load.batch * -(-reach // PAGE_SIZE), limit, rows, load.batch)
    state, random = init(config, strategy), Random(0)
    params = SamplingParams(max_tokens=answer, ignore_eos=True)
    for number in range(load.batch):
        state = add(state, Request(number, tuple(random.choices(range(spec.vocab_size - 2), k=length)), params))
    return state


def _measured(decode: DecodeRow, network: Network, load: DecodeLoad, ceilings: Ceilings, trace: Path | None) -> dict[str, Any]:
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
    return {
        "shape": decode.name,
        "batch": load.batch,
        "context": load.context,
        "buffer_size": load.buffer_size,
        "rows": sum(len(span.rows.tokens) for plan, _, _ in done for span in plan.spans) / count,
        "step_us": step_us,
        "roofline_us": roofline_us,
        "ratio": step_us / roofline_us,
        "device_us": spent and spent.us,
        "queued_us": decode.queued_us(load.steps) if on_device else None,
        "host_share": spent and max(0.0, 1.0 - spent.us / step_us),
        "host_us": host_us,
        "tokens_per_step": tokens / count / load.batch,
        "tokens_per_s": 1e6 * tokens / count / step_us,
        "slowest_us": 1e6 * max(seconds for _, seconds, _ in done),
        "captures": captures,
        "kinds": spent.kinds if spent else {},
        "launches": spent and spent.launches,
        "copy_gb_s": ceilings.bytes_per_s / 1e9,
        "matmul_tflop_s": ceilings.flops_per_s / 1e12,
    }


def _timed_steps(decode: DecodeRow, count: int) -> list[tuple[Plan, float, float]]:
    """Run steps without garbage collection. Return each step's plan, seconds, and host seconds."""
    gc.collect()
    gc.disable()
    try:
        decode.driver.host_s = 0.0
        return [decode.step() for _ in range(count)]
    finally:
        gc.enable()


def measure(
    shape: str,
    contexts: Sequence[int],
    batches: Sequence[int],
    tokens_per_forward: float,
    buffer_size: int,
    quantization: str,
    layers: int,
    profile: str,
    *,
    enforce_eager: bool,
) -> Iterator[dict[str, Any]]:
    """Yield a row for each context and batch, on a CUDA device if there is one."""
    device = torch.device(find_device(None))
    loads = [
        DecodeLoad(batch, context, tokens_per_forward, STEPS, buffer_size or None)
        for context, batch in product(contexts, batches)
    ]
    return measure_shape(
        shortened(SHAPES[shape], layers),
        loads,
        device=device,
        dtype=torch.bfloat16 if device.type == "cuda" else torch.float32,
        enforce_eager=enforce_eager,
        trace=Path(profile) if profile else None,
        quantization=quantization or None,
    )


COLUMNS = ("context", "batch", "rows", "step_us", "roofline_us", "ratio", "host_share", "host_us", "tokens_per_s")

if __name__ == "__main__":
    entry.run(
        __doc__,
        measure,
        COLUMNS,
        shape=("sdar-1.7b", f"One of {', '.join(SHAPES)}."),
        contexts=((CONTEXT,), "Tokens of each prompt."),
        batches=((1, 8, 32), "Requests at a time."),
        tokens_per_forward=(TOKENS_PER_FORWARD, "Tokens unmasked per request and step, at least 1."),
        buffer_size=(0, "Blocks in flight; 0: four for strategies of blocks."),
        quantization=("", "fp8, or nothing for bfloat16."),
        layers=(0, "Only so many layers; 0: all."),
        profile=("", "A file for the trace of the last batch."),
        enforce_eager=(False, "No CUDA graphs."),
    )
