"""Rows of `dlstep bench serve`: fit simulated replicas to some of them, and compare the predictions with others."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from operator import attrgetter
from pathlib import Path
from statistics import fmean, median
from typing import Any

from ..bench.serve import RequestLoad
from ..core import Config, SamplingParams, Strategy, Trace
from ..text.constraints import recompiled
from ..tiny import problems
from .costs import Size, StepCost, fitted
from .figures import Figures, SimulatedReplicas
from .work import MeasuredAnswer, each_once, repeated_jobs

STORIES, STORIES_SEED = 200, 5  # number and seed of the stories that an embedded model answers
COMPARED = ("tokens_per_s", "requests_per_s", "latency_p50", "latency_p95", "token_p50", "rows_per_forward")


@dataclass(frozen=True, slots=True)
class MeasuredRow:
    """The fields of a row that simulated replicas are fitted to or compared with."""

    rate: float
    requests_per_s: float
    tokens_per_s: float
    latency_p50: float
    latency_p95: float
    token_p50: float
    rows_per_forward: float
    busy_ms_per_forward: float
    answers: tuple[MeasuredAnswer, ...]
    load: RequestLoad


@dataclass(frozen=True, slots=True)
class PredictionError:
    """A measured and a predicted figure, and their relative difference: medians over all rows."""

    figure: str
    measured: float
    predicted: float
    error: float


def read_rows(path: Path) -> list[MeasuredRow]:
    """Return the rows of a file from `dlstep bench serve --json`. Raises ValueError for anything else."""
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        measured_rows = [_measured(row) for row in rows]
    except (TypeError, KeyError, AttributeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"{path} holds no rows of `dlstep bench serve --json` as this version prints them ({type(error).__name__}: {error})"
        ) from error
    for row in measured_rows:
        if row.rate <= 0 or not row.answers or row.busy_ms_per_forward <= 0:
            raise ValueError(f"{path}: a row of rate {row.rate:g} has no arrivals at random or no answers: measure it again")
    if not measured_rows:
        raise ValueError(f"{path} holds no row")
    return measured_rows


def _measured(row: Mapping[str, Any]) -> MeasuredRow:
    names = [name for name in MeasuredRow.__dataclass_fields__ if name not in ("answers", "load")]
    numbers = {name: float(row[name]) for name in names}
    load = row["load"]
    return MeasuredRow(
        **numbers,
        answers=tuple([MeasuredAnswer(prompt, tokens, max(1, nfe)) for prompt, tokens, nfe in row["answers"]]),
        load=RequestLoad(
            float(load["seconds"]), int(load["seed"]), int(load["prompts"]), int(load["max_tokens"]), bool(load["warm"])
        ),
    )


def read_answers(path: Path) -> tuple[MeasuredAnswer, ...]:
    """Return lengths and forward passes of answers, from rows of `dlstep bench serve` or a saved trace."""
    with path.open("rb") as file:
        begins = file.read(64).lstrip()[:1]
    if begins == b"[":
        return most_answers(read_rows(path))
    answers_by_request: dict[int, MeasuredAnswer] = {}
    ended = 0
    for state in recompiled(Trace.load(path)).states():
        if len(state.finished) == ended:
            continue
        ended = len(state.finished)
        for sequence in state.finished.values():
            if sequence.nfe and sequence.finish in ("stop", "length"):
                request = sequence.request
                answers_by_request[request.seq_id] = MeasuredAnswer(len(request.prompt), len(sequence.answer), sequence.nfe)
    if not answers_by_request:
        raise ValueError(f"{path}: no request of this trace has ended")
    return tuple(answers_by_request.values())


def embedded_answers(model: str, decoding_strategy: str, options: Mapping[str, Any], limit: int) -> tuple[MeasuredAnswer, ...]:
    """Decode `STORIES` stories with an embedded model. Return the lengths and forward passes of its answers."""
    from ..llm import LLM

    llm = LLM(model, decoding_strategy=decoding_strategy, **options)
    encode = llm.engine.tokenizer
    assert encode is not None, "an embedded model has a tokenizer"
    prompts = [problem.prompt for problem in problems(STORIES, seed=STORIES_SEED)]
    outputs = llm.generate(prompts, SamplingParams(max_tokens=limit), progress=False)
    lengths = [len(encode.encode(prompt)) for prompt in prompts]
    return tuple([MeasuredAnswer(length, len(each.token_ids), each.nfe) for length, each in zip(lengths, outputs, strict=True)])


def most_answers(rows: Iterable[MeasuredRow]) -> tuple[MeasuredAnswer, ...]:
    """Return the answers of the row with the most: the others sent a part of its prompts."""
    return max((row.answers for row in rows), key=len)


def turns(rows: Sequence[MeasuredRow]) -> list[list[MeasuredRow]]:
    """Group the rows into turns with one row per rate; a single group if the counts per rate differ."""
    by_rate: dict[float, list[MeasuredRow]] = {}
    for row in rows:
        by_rate.setdefault(row.rate, []).append(row)
    if len({len(each) for each in by_rate.values()}) > 1:
        return [list(rows)]
    return [list(turn) for turn in zip(*by_rate.values(), strict=True)]


def fits(rows: Sequence[MeasuredRow], config: Config, strategy: Strategy) -> list[SimulatedReplicas]:
    """Return replicas fitted to each turn. Raises ValueError for fewer than two rates.

    A machine with other load is slower in some turns. Fitting all turns together would attribute
    that to the rate.
    """
    if len({row.rate for row in rows}) < 2:
        raise ValueError("--fit needs rows of two rates at least: one says nothing of how time grows with load")
    answers = most_answers(rows)
    return [_fit(turn, answers, config, strategy) for turn in turns(rows)]


def middle(per_turn: Sequence[SimulatedReplicas]) -> SimulatedReplicas:
    """Return replicas whose costs are the medians over `per_turn`."""
    costs = zip(*[astuple(simulated.cost) for simulated in per_turn], strict=True)
    delay, tail = (median(map(attrgetter(name), per_turn)) for name in ("delay", "tail"))
    return replace(per_turn[0], cost=StepCost(*map(median, costs)), delay=delay, tail=tail)


def _fit(
    rows: Sequence[MeasuredRow], answers: tuple[MeasuredAnswer, ...], config: Config, strategy: Strategy
) -> SimulatedReplicas:
    """Return replicas fitted to the rows.

    Costs of a forward pass and its rows are fitted to the means of each row; the delay is the
    difference between measured and simulated median latency. `tail` is the distance from the median
    to the 95th percentile, measured / simulated.
    """
    sizes = [Size(1.0, row.rows_per_forward) for row in rows]
    cost = fitted(sizes, [row.busy_ms_per_forward / 1e3 for row in rows], ("forward", "row"))
    simulated = SimulatedReplicas(config, strategy, cost)
    predictions = [predicted(simulated, row, answers) for row in rows]
    late = [(row.latency_p50 - each.latency_p50) / 1e3 for row, each in zip(rows, predictions, strict=True)]
    far, near = (sum(each.latency_p95 - each.latency_p50 for each in each_set) for each_set in (rows, predictions))
    return replace(simulated, delay=max(0.0, fmean(late)), tail=far / near if near > 0 else 1.0)


def predicted(simulated: SimulatedReplicas, row: MeasuredRow, answers: tuple[MeasuredAnswer, ...]) -> Figures:
    """Return figures of one replica under the load of a row: equal arrivals, `answers` for its prompts."""
    load = row.load
    jobs = repeated_jobs(answers, row.rate, load.seconds, prompts=load.prompts, limit=load.max_tokens, seed=load.seed)
    return simulated.figures(jobs, before=each_once(answers, load.prompts, load.max_tokens) if load.warm else ())


def compared(
    per_turn: Sequence[SimulatedReplicas], rows: Sequence[MeasuredRow], answers: tuple[MeasuredAnswer, ...]
) -> list[PredictionError]:
    """Compare measured figures with predictions of the same turn, or of the medians of all turns.

    Only the load of `rows` is used for the prediction.
    """
    models = per_turn if len(per_turn) == len(rows) else [middle(per_turn)] * len(rows)
    predictions = [predicted(simulated, row, answers) for simulated, row in zip(models, rows, strict=True)]
    comparisons: list[PredictionError] = []
    for name in COMPARED:
        take = attrgetter(name)
        seen, expected = list(map(take, rows)), list(map(take, predictions))
        errors = [mine / theirs - 1 if theirs else float("nan") for mine, theirs in zip(expected, seen, strict=True)]
        comparisons.append(PredictionError(name, median(seen), median(expected), median(errors)))
    return comparisons
