"""Compare steps of a batch of constrained requests with steps of the same requests without a constraint, in one run.

Each request has another JSON schema of the files `--schemas`, and the vocabulary is that of `--vocabulary` (see
`benchmarks.schema_answers`). The network has random weights in the shape of a published checkpoint, so its samples are
replaced by scripted ones: a random instance of the schema, of which each pass unmasks one to four positions, mostly those
farther to the left. Requests with and without a constraint therefore take the same steps.

The first round decodes other schemas, so that graphs are captured. The second one decodes the first answer to each schema,
the third one a second answer. `plain_ms` and `constrained_ms` are median times of steps in which all requests are
decoded and no graph is captured. The other columns are milliseconds per pass of the constrained requests: `masks` is how
long the device waits for masks (on a CPU, how long computing them takes); `sets` to `packing` and `filter` are mean host times
of computing masks and of filtering sampled tokens; `schedule` to `commit` are those of the rest of a step, and `plain_schedule`
to `plain_commit` those of an unconstrained step.
"""

import gc
import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from random import Random
from statistics import mean, median
from time import perf_counter
from typing import Any, NamedTuple

import torch

from dlstep.core import NO_SAMPLES, Config, Plan, Refused, Request, Samples, SamplingParams, Span, SpanSamples, Spec, add, init
from dlstep.core.automaton import Automaton
from dlstep.core.constraint import Constraint, RequestConstraint
from dlstep.core.filtering import FilteredBlock, WindowFilter
from dlstep.core.lifecycle import largest_fed_end
from dlstep.driver import TorchDriver, tables
from dlstep.driver.torch_driver import StartedPlan
from dlstep.engine.devices import find_device
from dlstep.models import Checkpoint
from dlstep.models.compiled import compile_layers
from dlstep.text.constraints import compiled
from dlstep_kernels import has_kernels

from . import decode, entry
from .decode import PAGE_SIZE, ROWS, SURE, UNSURE, Decoding, Step
from .schema_answers import BLOCK, EOS, MASK, ROOM, VOCABULARY, Examples, pieces_of, quantile, spelled, tokens_of
from .shapes import SHAPES, SMALL, Shape, random_checkpoint, shortened

LEAST = 96  # tokens of an answer
TINY = replace(SHAPES["sdar-8b"], name="tiny", facts={**SHAPES["sdar-8b"].facts, **SMALL})
ROUNDS = ("warm-up", "first", "second")
MASKS = ("sets", "classes", "rows", "packing")
STAGES = ("schedule", "start", "wait", "commit")
# The functions of each part of a step. The time of a part excludes that of the parts that it calls.
PARTS: tuple[tuple[str, Any, tuple[str, ...]], ...] = (
    ("schedule", decode, ("schedule",)),
    ("start", TorchDriver, ("start",)),
    ("wait", StartedPlan, ("wait",)),
    ("commit", decode, ("commit",)),
    ("sets", RequestConstraint, ("window_masks",)),
    ("classes", Constraint, ("masks",)),
    ("rows", tables.MaskTable, ("rows_of",)),
    ("packing", tables, ("packed",)),
    ("filter", WindowFilter, ("__init__", "enter", "leave")),
    ("filter", FilteredBlock, ("compatible",)),
    ("filter", RequestConstraint, ("run",)),
)


Seconds = defaultdict[str, float]


class Asked(NamedTuple):
    """A schema's automaton, and two answers."""

    automaton: Automaton
    answers: tuple[tuple[int, ...], ...]


class Stopwatch:
    """The seconds of each part of the steps since `lap` was called, measured by replacing functions."""

    def __init__(self) -> None:
        self._spent, self._inner = Seconds(float), list[float]()
        self._waits = list[tuple[torch.cuda.Event, torch.cuda.Event]]()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Measure the calls of `PARTS`."""
        before = [(owner, name, getattr(owner, name)) for _, owner, names in PARTS for name in names]
        for part, owner, names in PARTS:
            for name in names:
                setattr(owner, name, self._timed(part, getattr(owner, name)))
        if torch.cuda.is_available():
            tables.MaskTable.rows_of = self._on_device(tables.MaskTable.rows_of)
        try:
            yield
        finally:
            for owner, name, function in before:
                setattr(owner, name, function)

    def lap(self) -> Seconds:
        """Return the seconds of each part since the last call."""
        spent, self._spent = self._spent, Seconds(float)
        for ready, masked in self._waits:
            spent["masks"] += ready.elapsed_time(masked) / 1e3
        if not torch.cuda.is_available():
            spent["masks"] = sum(spent[name] for name in MASKS)
        self._waits.clear()
        return spent

    def _on_device(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function between two recorded events; the first occurs when the device has finished all other work."""

        def call(*args: Any) -> Any:
            ready, masked = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            ready.record()
            result = function(*args)
            masked.record()
            self._waits.append((ready, masked))
            return result

        return call

    def _timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self._inner.append(0.0)
            begun = perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                whole = perf_counter() - begun
                self._spent[part] += whole - self._inner.pop()
                if self._inner:
                    self._inner[-1] += whole

        return call


class Script:
    """Samples that spell the answer of each request, by its number."""

    def __init__(self, answers: Sequence[Sequence[int]], starts: int) -> None:
        self._answers, self._start = answers, starts
        self._random = [Random(number) for number in range(len(answers))]

    def fed(self, plan: Plan, mask_id: int | None) -> Plan:
        """Return the plan unchanged."""
        return plan

    def samples(self, plan: Plan) -> Samples:
        """Return the scripted samples for `plan`."""
        rows = [self._rows(span, plan) if span.wanted.sampled else NO_SAMPLES for span in plan.spans]
        return Samples(plan, tuple(rows), checked=True)

    def _rows(self, span: Span, plan: Plan) -> SpanSamples:
        answer, random, sampled = self._answers[span.who.id], self._random[span.who.id], span.wanted.sampled
        offsets = [position - self._start for position in sampled]
        tokens = [answer[offset] if offset < len(answer) else EOS for offset in offsets]
        order = sorted(range(len(sampled)), key=lambda index: offsets[index] + random.uniform(0, BLOCK / 2))
        sure = {0, *order[: random.randint(1, 4)]}
        return SpanSamples(tuple(tokens), tuple([SURE if index in sure else UNSURE for index in range(len(sampled))]))


_PIECES: list[bytes] = []  # of a process that compiles


def load_pieces(vocabulary: str, size: int) -> list[bytes]:
    """Return the bytes of `size` ids. Ids that the vocabulary lacks have no bytes, and occur in no answer."""
    _PIECES[:] = pieces_of(Path(vocabulary))
    _PIECES.extend([b""] * (size - len(_PIECES)))
    return _PIECES


def asked(line: str) -> Asked | None:
    """Return the automaton of a schema and two answers; None unless two random answers have a suitable length."""
    schema, id_of = json.loads(line)["schema"], {piece: token for token, piece in enumerate(_PIECES) if piece}
    longest, examples = max(map(len, id_of)), Examples(schema, Random(0), words=32)
    texts = [spelled(examples.of(schema), schema) for _ in range(16)]
    answers = [tuple(tokens_of(text, id_of, longest)) for text in texts]
    if len(answers := [answer for answer in answers if LEAST <= len(answer) <= ROOM - BLOCK]) < 2:
        return None
    try:
        automaton = compiled("json_schema", json.dumps(schema), Spec(MASK, (EOS,), len(_PIECES), pieces=tuple(_PIECES)))
    except Refused:
        return None
    accepted = [answer for answer in answers if automaton.accepts(answer)]
    return Asked(automaton, tuple(accepted[:2])) if len(accepted) > 1 else None


def all_asked(files: Sequence[str], vocabulary: str, size: int, count: int, workers: int) -> list[Asked]:
    """Return the first `count` schemas of the files that have two answers of a suitable length."""
    lines = [line for file in files for line in Path(file).read_text(encoding="utf-8").splitlines()]
    found: list[Asked] = []
    with ProcessPoolExecutor(workers, get_context("spawn"), load_pieces, (vocabulary, size)) as pool:
        for first in range(0, len(lines), workers):  # not all at once: `count` may be small
            found += [each for each in pool.map(asked, lines[first : first + workers]) if each is not None]
            if len(found) >= count:
                return found[:count]
    raise SystemExit(f"--schemas: {len(found)} schemas have two answers of at least {LEAST} tokens; {count} are needed")


class Measured(NamedTuple):
    """A step and the seconds of its parts. `whole`: all requests were decoded in it."""

    step: Step
    parts: Seconds
    whole: bool


def decoded(
    driver: TorchDriver, config: Config, strategy: Any, requests: Sequence[Request], answers: Sequence[Sequence[int]], most: int
) -> list[Measured]:
    """Return the steps of the requests until the first of them ends, or after `most` steps in which all are decoded."""
    state = init(config, strategy)
    for request in requests:
        state = add(state, request)
    decoding = Decoding(driver, state, Script(answers, len(requests[0].prompt)))  # type: ignore[arg-type]
    steps, whole, watch = list[Measured](), 0, Stopwatch()
    gc.collect()
    gc.freeze()
    with watch.running():
        while whole < most and not decoding.state.finished:
            ready = not decoding.state.waiting and all(sequence.steps for sequence in decoding.state.running)
            steps.append(Measured(decoding.step(), watch.lap(), ready))
            whole += ready
    return steps


def rounds(
    checkpoint: Checkpoint, shape: Shape, spec: Spec, given: Sequence[Asked], buffer: int, context: int, passes: int
) -> Iterator[dict[str, Any]]:
    """Yield a row for each round. The first half of the schemas is measured, the other warms up."""
    batch, random, limit = len(given) // 2, Random(0), context + ROOM
    strategy = shape.strategy(2.5, buffer)
    reach = largest_fed_end(strategy, limit)
    rows = max(ROWS, 2 * batch * strategy.rows_at_once(Request(0, (0,))))
    config = Config(spec, PAGE_SIZE, batch * -(-reach // PAGE_SIZE), limit, rows, batch)
    driver = TorchDriver(checkpoint, config)
    for number, name in enumerate(ROUNDS):
        group = given[:batch] if number else given[batch:]
        answers = [each.answers[number == 2] for each in group]
        prompts = [tuple(random.choices(range(MASK + 1, VOCABULARY), k=context)) for _ in group]
        asks = [Request(index, prompt, SamplingParams(max_tokens=ROOM)) for index, prompt in enumerate(prompts)]
        plain = decoded(driver, config, strategy, asks, answers, passes)
        asks = [replace(one, automaton=each.automaton) for one, each in zip(asks, group, strict=True)]
        constrained = decoded(driver, config, strategy, asks, answers, passes)
        yield {"batch": batch, "buffer_size": buffer, "round": name, **row_of(plain, constrained)}


def row_of(plain: Sequence[Measured], constrained: Sequence[Measured]) -> dict[str, Any]:
    """Return the figures of a round."""
    both = [
        (one, other)
        for one, other in zip(plain, constrained, strict=True)
        if one.whole and not one.step.captures and not other.step.captures
    ]
    ms = [1e3 * median([pair[number].step.seconds for pair in both]) for number in range(2)]
    masked = [each.parts for each in constrained if each.parts["rows"]]
    spent = [1e3 * parts["masks"] for parts in masked]
    return {
        "steps": len(both),
        "plain_ms": ms[0],
        "constrained_ms": ms[1],
        "ratio": ms[1] / ms[0],
        "mean_ratio": sum(other.step.seconds for _, other in both) / sum(one.step.seconds for one, _ in both),
        "masks_p50": quantile(spent, 0.5),
        "masks_p90": quantile(spent, 0.9),
        "masks_max": max(spent),
        **{name: 1e3 * mean([parts[name] for parts in masked]) for name in (*MASKS, "filter")},
        **{name: 1e3 * mean([other.parts[name] for _, other in both]) for name in STAGES},
        **{f"plain_{name}": 1e3 * mean([one.parts[name] for one, _ in both]) for name in STAGES},
    }


def measure(
    shape: str,
    layers: int,
    schemas: tuple[str, ...],
    vocabulary: str,
    batches: tuple[int, ...],
    buffers: tuple[int, ...],
    context: int,
    passes: int,
    workers: int,
) -> Iterator[dict[str, Any]]:
    """Yield a row for each batch size, `buffer_size` and round."""
    chosen = shortened(TINY if shape == TINY.name else SHAPES[shape], layers)
    size = chosen.facts["vocab_size"]
    given = all_asked(schemas, vocabulary, size, 2 * max(batches), workers or os.cpu_count() or 1)
    device = torch.device(find_device(None))
    checkpoint = random_checkpoint(chosen, device, torch.bfloat16 if device.type == "cuda" else torch.float32)
    if has_kernels(device):
        compile_layers(checkpoint.network)
    spec = Spec(MASK, (EOS,), size, checkpoint.spec.head_shift, pieces=tuple(load_pieces(vocabulary, size)))
    for batch in batches:
        for buffer in buffers:
            yield from rounds(checkpoint, chosen, spec, given[: 2 * batch], buffer, context, passes)


COLUMNS = (
    "batch",
    "buffer_size",
    "round",
    "steps",
    "plain_ms",
    "constrained_ms",
    "ratio",
    "masks_p50",
    "masks_p90",
    "masks_max",
)

if __name__ == "__main__":
    entry.run(
        __doc__,
        measure,
        COLUMNS,
        shape=("sdar-8b", f"The shape of the network, or {TINY.name}."),
        layers=(0, "Number of layers; 0: all."),
        schemas=((), "Files of schemas, one JSON object per line."),
        vocabulary=("", "A file with the bytes of each id."),
        batches=((32,), "Requests at a time."),
        buffers=((1, 4), "Blocks in flight."),
        context=(512, "Tokens of each prompt."),
        passes=(64, "Maximum steps of a round, after the prompts."),
        workers=(0, "Schemas compiled in parallel; 0: one per processor."),
    )
