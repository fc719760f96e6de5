"""Steady decoding in the shapes of published checkpoints: the time of a step against the device's limits.

The engine prefills prompts of random tokens. Every later step is a normal step of the engine with two
untimed changes: random ids are fed instead of masks, and scripted samples replace those of the
network, so that engines can be compared on equal work.

`step_us` is the mean time of a step in microseconds, `roofline_us` the minimum time at the measured
ceilings, `ratio` = step / roofline, and `idle` the share of the step in which the device waits (None
without a CUDA device). `rows` are fed per step, `captures` are graphs captured in the measured steps,
`kinds` and `launches` describe the device's kernels. `tokens_per_s` counts the published tokens per
pass, or else those of the script. A network that does not fit on the device has a row without figures.
"""

import gc
from collections.abc import Iterator, Sequence
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
from dlstep.distributed.ranks import ALONE
from dlstep.driver import TorchDriver
from dlstep.engine.devices import find_device, memory_of
from dlstep.models import Checkpoint
from dlstep.models.compiled import compile_layers
from dlstep_kernels import has_kernels

from . import entry
from .device import Ceilings, busy, measure_ceilings
from .roofline import Network, least_us, network_of
from .scripts import unmasked
from .shapes import PACED_BY_OPTIONS, SHAPES, Shape, parameter_count, random_checkpoint, shortened

CONTEXT = 512
TOKENS_PER_FORWARD = 2.5
PAGE_SIZE = 32
STEPS = 32  # measured steps, or a whole canvas; as many after them are profiled
WARM = 3  # times as many steps before them warm up, so that graphs are captured
ROWS = 8192  # rows of a prefill pass
SHARE = 0.85  # share of the memory for weights; quantized weights are created in 16 bits first
SURE, UNSURE = 1.0, 0.25  # scripted probabilities


@dataclass(frozen=True, slots=True)
class DecodeLoad:
    """The decode to measure: `batch` requests of `context` tokens, `tokens_per_forward` unmasked per request and step.

    `buffer_size` is the number of blocks in flight; None: the shape's.
    """

    batch: int
    context: int = 4096
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


@dataclass(frozen=True, slots=True)
class Step:
    """A step that ran: its plan, its seconds and the number of graphs that it captured."""

    plan: Plan
    seconds: float
    captures: int


class Decoding:
    """A running decode, timed step by step. A `pace` scripts the masks and, unless `own_samples`, the samples."""

    def __init__(self, driver: TorchDriver, state: State, pace: Pace | None = None, *, own_samples: bool = False) -> None:
        self.driver, self.state, self.pace, self._own_samples = driver, state, pace, own_samples
        ranks = driver.network.ranks
        self._channel = connect(ranks) if ranks.several else None

    def step(self) -> Step:
        """Run a step. Its seconds exclude the script, and waiting for the script of another rank."""
        captured, start = self.driver.graph_count, perf_counter()
        plan = schedule(self.state)
        planned, scripted = perf_counter() - start, None
        if self.pace is not None:
            plan = self.pace.fed(plan, self.state.config.spec.mask_id)
            scripted = None if self._own_samples else self.pace.samples(plan)
        if self._channel is not None:
            self._channel.check(f"step {plan.step}", plan.cache_digest)()
        start = perf_counter()
        pending = self.driver.start(plan)
        prepared = prepare(self.state, plan)
        samples = pending.wait()
        if scripted is not None:
            samples = scripted
            self.driver._current.digest = samples.cache_digest  # pyright: ignore[reportPrivateUsage]
        self.state = commit(self.state, samples, prepared)
        return Step(plan, planned + perf_counter() - start, self.driver.graph_count - captured)

    def prefill(self) -> None:
        """Step until every request has sampled."""
        while self.state.waiting or not all(sequence.steps for sequence in self.state.running):
            self.step()

    def unmasked(self) -> int:
        """Return the number of unmasked positions of all requests."""
        return sum(map(unmasked, self.state.running))


def filled(config: Config, strategy: Strategy, params: Sequence[SamplingParams], length: int) -> State:
    """Return a state with a waiting request of `length` random tokens for each of `params`."""
    state, random, ids = init(config, strategy), Random(0), range(config.spec.vocab_size - 2)
    for number, each in enumerate(params):
        state = add(state, Request(number, tuple(random.choices(ids, k=length)), replace(each, ignore_eos=True)))
    return state


def scripted_decoding(
    checkpoint: Checkpoint, strategy: Strategy, load: DecodeLoad, *, enforce_eager: bool = False, captures: bool = True
) -> Decoding:
    """Return a decode with all prompts waiting and answers long enough for the measurement.

    With `captures`, all graphs are captured first.
    """
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
    driver = TorchDriver(checkpoint, config, enforce_eager=enforce_eager)
    if captures:
        driver.capture(strategy)
    own_samples = checkpoint.description.decoding_strategy in PACED_BY_OPTIONS
    state = filled(config, strategy, [SamplingParams(max_tokens=answer)] * load.batch, length)
    return Decoding(driver, state, Pace(load.tokens_per_forward, spec.vocab_size), own_samples=own_samples)


def measure_shape(
    shape: Shape,
    loads: Sequence[DecodeLoad],
    *,
    device: torch.device,
    dtype: torch.dtype,
    enforce_eager: bool = False,
    trace: Path | None = None,
    ceilings: Ceilings | None = None,
    quantization: str | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield one row for each load. Layers are compiled if there are kernels.

    `ceilings` are measured if None. Steps after the measured ones are profiled, those of the last
    load into `trace`.
    """
    ceilings = ceilings or measure_ceilings(device, dtype)
    checkpoint = random_checkpoint(shape, device, dtype, ALONE, quantization)
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
    """Yield the rows of a loaded network. If several ranks share it, the rows describe the share of this rank."""
    network = network_of(checkpoint.network, checkpoint.ranks.size)
    for number, load in enumerate(loads, start=1):
        strategy = shape.strategy(load.tokens_per_forward, load.buffer_size)
        cycle = getattr(strategy, "max_denoising_steps", 0)
        load = replace(load, steps=cycle + 1) if cycle else load  # one more to encode the canvas
        decoding = scripted_decoding(checkpoint, strategy, load, enforce_eager=enforce_eager, captures=captures)
        yield _measured(decoding, shape, network, load, ceilings, trace if number == len(loads) else None)
        del decoding
        if checkpoint.network.device.type == "cuda":
            torch.cuda.empty_cache()


def _measured(
    decoding: Decoding, shape: Shape, network: Network, load: DecodeLoad, ceilings: Ceilings, trace: Path | None
) -> dict[str, Any]:
    """Return the figures of one load."""
    decoding.prefill()
    for _ in range(WARM * load.steps):
        decoding.step()
    before = decoding.unmasked()
    gc.collect()
    gc.disable()
    done = [decoding.step() for _ in range(load.steps)]
    gc.enable()
    tokens = (decoding.unmasked() - before) / len(done) / load.batch
    step_us = 1e6 * sum(step.seconds for step in done) / len(done)
    roofline_us = sum(least_us(network, step.plan, ceilings) for step in done) / len(done)
    on_device = decoding.driver.network.model.device.type == "cuda"
    spent = busy(decoding.step, min(load.steps, STEPS), trace) if on_device or trace else None
    return {
        "shape": shape.name,
        "batch": load.batch,
        "context": load.context,
        "buffer_size": load.buffer_size,
        "rows": sum(len(span.rows.tokens) for step in done for span in step.plan.spans) / len(done),
        "step_us": step_us,
        "roofline_us": roofline_us,
        "ratio": step_us / roofline_us,
        "idle": spent and max(0.0, 1.0 - spent.us / step_us),
        "tokens_per_step": tokens,
        "tokens_per_s": 1e6 * (shape.tokens_per_pass or tokens) * load.batch / step_us,
        "slowest_us": 1e6 * max(step.seconds for step in done),
        "captures": sum(step.captures for step in done),
        "kinds": spent.kinds if spent else {},
        "launches": spent and spent.launches,
        "copy_gb_s": ceilings.bytes_per_s / 1e9,
        "matmul_tflop_s": ceilings.flops_per_s / 1e12,
    }


def measure(
    shapes: Sequence[str],
    quantizations: Sequence[str],
    contexts: Sequence[int],
    batches: Sequence[int],
    tokens_per_forward: float,
    buffer_size: int,
    layers: int,
    profile: str,
    *,
    enforce_eager: bool,
) -> Iterator[dict[str, Any]]:
    """Yield a row for each shape, quantization, context and batch, on a CUDA device if there is one."""
    device = torch.device(find_device(None))
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    ceilings, room = measure_ceilings(device, dtype), SHARE * (memory_of(str(device)) or float("inf"))
    for name, quantization in product(shapes, quantizations):
        shape = shortened(SHAPES[name], layers)
        if parameter_count(shape) * dtype.itemsize > room:
            yield dict.fromkeys(COLUMNS) | {"shape": name, "quantization": quantization}
            continue
        pace = tokens_per_forward or shape.tokens_per_pass or TOKENS_PER_FORWARD
        loads = [DecodeLoad(b, context, pace, STEPS, buffer_size or None) for context, b in product(contexts, batches)]
        yield from measure_shape(
            shape,
            loads,
            device=device,
            dtype=dtype,
            enforce_eager=enforce_eager,
            trace=Path(profile) if profile else None,
            ceilings=ceilings,
            quantization=None if quantization == "none" else quantization,
        )


COLUMNS = ("shape", "quantization", "context", "batch", "step_us", "roofline_us", "ratio", "idle", "tokens_per_s")

if __name__ == "__main__":
    entry.run(
        __doc__,
        measure,
        COLUMNS,
        shapes=(tuple(SHAPES), "Shapes."),
        quantizations=(("none",), "none, fp8, or both."),
        contexts=((CONTEXT,), "Tokens of each prompt."),
        batches=((1, 8, 32), "Requests at a time."),
        tokens_per_forward=(0.0, f"Tokens unmasked per request and step; 0: as published, or {TOKENS_PER_FORWARD}."),
        buffer_size=(0, "Blocks in flight; 0: four for strategies of blocks."),
        layers=(0, "Only so many layers; 0: all."),
        profile=("", "A file for the trace of the last batch."),
        enforce_eager=(False, "No CUDA graphs."),
    )
