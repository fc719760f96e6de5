"""Decode with two networks at three batch sizes and two context lengths, sampling from the network itself.

Weights are random, but heads are scaled so that some predictions are confident. This allows a
threshold at which about `TOKENS_PER_FORWARD` positions are unmasked per forward pass, as with
trained models.

All times except `start_s` are from the last of `RUNS` runs. `start_s` is the time to create weights,
compile layers and capture graphs. `prefill_s` ends when every request has sampled. `step_ms` is the
mean over the later steps with all requests, and `replay_ms` the mean over those of these steps that capture no graph.
`limit_ms` is the minimum time at the measured ceilings. `first` is the time of the first run divided
by that of the last, `idle` the share of a step in which the device waits. `tokens_per_s` excludes the
prefill; `stock` and `tuned` are the same for the peer, None if it was not measured.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean
from time import perf_counter
from typing import Any

import torch

from dlstep.core import Config, SamplingParams, Strategy, commit, schedule
from dlstep.core.lifecycle import least_pages
from dlstep.driver import TorchDriver
from dlstep.models import Checkpoint
from dlstep.models.compiled import compile_layers
from dlstep.models.shapes import head_of
from dlstep.rules.threshold import Threshold
from dlstep.strategies.multi_bd import MultiBD

from . import entry
from .decode import Decoding, Step, filled
from .device import Ceilings, busy, kernel_device, measure_ceilings
from .roofline import least_us, network_of
from .shapes import SHAPES, random_checkpoint

NAMES = ("sdar-8b", "sdar-1.7b")
BATCHES, CONTEXTS = (1, 8, 32), (512, 4096)
ANSWER = 256  # tokens
TOKENS_PER_FORWARD = 3.0
BUFFER_SIZE = 4  # blocks in flight
HEAD_SCALE = 8.0  # factor on the head's weights
THRESHOLDS = tuple([1.0 - 0.5 ** (number / 3) for number in range(1, 32)])  # denser near 1
PAGE_SIZE, ROWS = 32, 8192
PROFILED = 8  # steps to profile, after as many others and before any request ends
RUNS = 3
PEER = Path(__file__).with_name("peer.json")


@dataclass(frozen=True, slots=True)
class Run:
    """The costs of one run.

    `steps` are those after the prefill that include all requests. `tokens` and `forwards` (one per
    request and pass) exclude the prefill.
    """

    seconds: float
    prefill_s: float
    decode_s: float
    tokens: int
    forwards: int
    steps: list[Step]
    busy_us: float | None


class Cells:
    """A network with its driver; every run starts from a fresh state."""

    def __init__(self, name: str, device: torch.device, dtype: torch.dtype, quantization: str, buffer_size: int) -> None:
        begin = perf_counter()
        shape = SHAPES[name]
        self.quantization, self.buffer_size = quantization, buffer_size
        chosen = None if quantization == "none" else quantization
        self.checkpoint: Checkpoint = random_checkpoint(shape, device, dtype, quantization=chosen)
        head: Any = head_of(self.checkpoint.network)
        with torch.no_grad():
            head.weight.mul_(HEAD_SCALE)
        compile_layers(self.checkpoint.network)
        self.name, self.network = name, network_of(self.checkpoint.network)
        limit = max(CONTEXTS) + ANSWER
        pages = least_pages(self.strategy(0.5), limit, PAGE_SIZE)
        self.config = Config(self.checkpoint.spec, PAGE_SIZE, max(BATCHES) * pages, limit, ROWS, max(BATCHES))
        self.driver = TorchDriver(self.checkpoint, self.config)
        self.driver.capture(self.strategy(0.5))
        if device.type == "cuda":
            torch.cuda.synchronize()
        self.start_s = perf_counter() - begin
        self.peer = peer_of(name, buffer_size)

    def strategy(self, accept_threshold: float) -> Strategy:
        """Return the strategy `multi_bd` with blocks of 32."""
        return MultiBD(
            32, self.buffer_size, rule=Threshold(accept_threshold), add_block_threshold=0.1, semi_complete_threshold=0.9
        )

    def accept_threshold(self, context: int) -> float:
        """Return the threshold that comes closest to `TOKENS_PER_FORWARD`; one batch tries all thresholds."""
        params = [SamplingParams(64, strategy_options=(("accept_threshold", threshold),)) for threshold in THRESHOLDS]
        state = filled(self.config, self.strategy(THRESHOLDS[0]), params, context)
        while not state.done:
            state = commit(state, self.driver.run(schedule(state)))
        speeds = [len(state.finished[number].answer) / state.finished[number].nfe for number in range(len(params))]
        return min(zip(THRESHOLDS, speeds, strict=True), key=lambda pair: abs(pair[1] - TOKENS_PER_FORWARD))[0]

    def run(self, batch: int, context: int, accept_threshold: float, *, profiled: bool = False) -> Run:
        """Decode all requests or, if `profiled`, until `PROFILED` steps have been profiled."""
        params = [SamplingParams(ANSWER)] * batch
        decoding = Decoding(self.driver, filled(self.config, self.strategy(accept_threshold), params, context))
        steps, busy_us, begin = list[Step](), None, perf_counter()
        decoding.prefill()
        prefilled, before = perf_counter(), decoding.unmasked()
        while not decoding.state.done and busy_us is None:
            if profiled and len(steps) == PROFILED:
                device_time = busy(decoding.step, PROFILED)
                busy_us = device_time.us if device_time else None
                break
            steps.append(decoding.step())
        done = perf_counter()
        live = [step for step in steps if len(step.plan.spans) == batch]
        forwards, tokens = sum(len(step.plan.spans) for step in steps), batch * (context + ANSWER) - before
        return Run(done - begin, prefilled - begin, done - prefilled, tokens, forwards, live, busy_us)

    def rows(self, ceilings: Ceilings) -> Iterator[dict[str, Any]]:
        """Yield a row for each batch and context."""
        for context in CONTEXTS:
            threshold = self.accept_threshold(context)
            for batch in BATCHES:
                runs = [self.run(batch, context, threshold) for _ in range(RUNS)]
                last = self.run(batch, context, threshold, profiled=self.driver.network.model.device.type == "cuda")
                yield self._row(batch, context, threshold, runs, last, ceilings)

    def _row(
        self, batch: int, context: int, accept_threshold: float, runs: list[Run], last: Run, ceilings: Ceilings
    ) -> dict[str, Any]:
        run = runs[-1]
        replayed = [step.seconds for step in run.steps if not step.captures]
        step_s = fmean(step.seconds for step in run.steps)
        limit_us = fmean(least_us(self.network, step.plan, ceilings) for step in run.steps)
        profiled_s = fmean(step.seconds for step in run.steps[PROFILED : 2 * PROFILED])
        stock, tuned = self.peer.get((batch, context), (None, None))
        return {
            "shape": self.name,
            "batch": batch,
            "context": context,
            "accept_threshold": accept_threshold,
            "tokens_per_forward": run.tokens / run.forwards,
            "start_s": self.start_s,
            "prefill_s": run.prefill_s,
            "step_ms": 1e3 * step_s,
            "replay_ms": 1e3 * fmean(replayed),
            "limit_ms": limit_us / 1e3,
            "ratio": 1e6 * step_s / limit_us,
            "first": runs[0].seconds / run.seconds,
            "idle": None if last.busy_us is None else max(0.0, 1.0 - last.busy_us / (1e6 * profiled_s)),
            "captures": sum(step.captures for each in runs for step in each.steps),
            "tokens_per_s": run.tokens / run.decode_s,
            "quantization": self.quantization,
            "buffer_size": self.buffer_size,
            "stock": stock,
            "tuned": tuned,
        }


def peer_of(name: str, buffer_size: int) -> dict[tuple[int, int], tuple[int, int]]:
    """Return the peer's tokens per second, unmodified and tuned, by batch and context."""
    cells = json.loads(PEER.read_text(encoding="utf-8"))["cells"]
    own = [row for row in cells if (row["shape"], row.get("buffer_size", BUFFER_SIZE)) == (name, buffer_size)]
    return {(row["batch"], row["context"]): (row["stock"], row["tuned"]) for row in own}


def measure_cells(
    names: Sequence[str] = NAMES,
    quantizations: Sequence[str] = ("none",),
    buffer_sizes: Sequence[int] = (BUFFER_SIZE,),
    ceilings: Ceilings | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield all rows. Raises ValueError without a CUDA device."""
    device = kernel_device()
    ceilings = ceilings or measure_ceilings(device, torch.bfloat16)
    for name, quantization, buffer_size in product(names, quantizations, buffer_sizes):
        cells = Cells(name, device, torch.bfloat16, quantization, buffer_size)
        yield from cells.rows(ceilings)
        del cells
        torch.cuda.empty_cache()


COLUMNS = (
    "shape",
    "quantization",
    "buffer_size",
    "batch",
    "context",
    "step_ms",
    "limit_ms",
    "ratio",
    "tokens_per_s",
    "stock",
    "tuned",
)

if __name__ == "__main__":
    entry.run(
        __doc__,
        measure_cells,
        COLUMNS,
        names=(NAMES, "Networks."),
        quantizations=(("none",), "none, fp8, or both."),
        buffer_sizes=((BUFFER_SIZE,), "Blocks in flight."),
    )
