"""Rows of `dlstep bench serve`: a fleet fitted to some of them, and its prediction beside others."""

import json
from collections.abc import Iterable, Mapping, Sequence as Items
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from statistics import fmean, median
from typing import Any

from ..core import Config, Strategy, Trace
from .costs import Size, fitted
from .figures import Figures, Fleet
from .work import Answered, each_once, repeated_jobs

COMPARED = ("tokens_per_s", "requests_per_s", "latency_p50", "latency_p95", "token_p50", "rows_per_forward")


@dataclass(frozen=True, slots=True)
class Load:
    """The load of a row, as `dlstep bench serve` writes it."""

    seconds: float
    seed: int
    prompts: int
    max_tokens: int
    warm: bool


@dataclass(frozen=True, slots=True)
class Measured:
    """The part of a row that a fleet is fitted to or compared with."""

    rate: float
    requests_per_s: float
    tokens_per_s: float
    latency_p50: float
    latency_p95: float
    token_p50: float
    rows_per_forward: float
    busy_ms_per_forward: float
    answers: tuple[Answered, ...]
    load: Load


@dataclass(frozen=True, slots=True)
class Comparison:
    """A figure as measured and as predicted, each the median of its rows; `error` is their difference in parts of the first."""

    figure: str
    measured: float
    predicted: float
    error: float


def read_rows(path: Path) -> list[Measured]:
    """The rows of a file that `dlstep bench serve --json` printed. Raises ValueError for anything else."""
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        found = [_measured(row) for row in rows]
    except (TypeError, KeyError, AttributeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"{path} holds no rows of `dlstep bench serve --json` as this version prints them ({type(error).__name__}: {error})"
        ) from error
    for row in found:
        if row.rate <= 0 or not row.answers or row.busy_ms_per_forward <= 0:
            raise ValueError(f"{path}: a row of rate {row.rate:g} has no arrivals at random or no answers: measure it again")
    if not found:
        raise ValueError(f"{path} holds no row")
    return found


def _measured(row: Mapping[str, Any]) -> Measured:
    names = [name for name in Measured.__dataclass_fields__ if name not in ("answers", "load")]
    numbers = {name: float(row[name]) for name in names}
    load = row["load"]
    return Measured(
        **numbers,
        answers=tuple([Answered(prompt, tokens, max(1, nfe)) for prompt, tokens, nfe in row["answers"]]),
        load=Load(float(load["seconds"]), int(load["seed"]), int(load["prompts"]), int(load["max_tokens"]), bool(load["warm"])),
    )


def read_answers(path: Path) -> tuple[Answered, ...]:
    """Lengths and forwards of answers, from rows of `dlstep bench serve --json` or from a trace that `Trace.save` wrote."""
    with path.open("rb") as file:
        begins = file.read(64).lstrip()[:1]
    if begins == b"[":
        return most_answers(read_rows(path))
    found: dict[int, Answered] = {}
    ended = 0
    for state in Trace.load(path).states():
        if len(state.finished) == ended:
            continue
        ended = len(state.finished)
        for sequence in state.finished.values():
            if sequence.nfe and sequence.finish in ("stop", "length"):
                request = sequence.request
                found[request.arrival] = Answered(len(request.prompt), len(sequence.answer), sequence.nfe)
    if not found:
        raise ValueError(f"{path}: no request of this trace has ended")
    return tuple(found.values())


def most_answers(rows: Iterable[Measured]) -> tuple[Answered, ...]:
    """The answers of the row that has most of them: the others sent a part of its prompts."""
    return max((row.answers for row in rows), key=len)


def fit(rows: Items[Measured], config: Config, strategy: Strategy) -> Fleet:
    """A fleet whose forwards take what those of the rows took, and its requests as much longer as theirs did.

    Costs of a forward and of its rows are fitted to the means of each row; the time outside of the engine is the difference
    between measured and simulated medians of latency. Raises ValueError unless there are two rates.
    """
    if len({row.rate for row in rows}) < 2:
        raise ValueError("--fit needs rows of two rates at least: one says nothing of how time grows with load")
    sizes = [Size(1.0, row.rows_per_forward) for row in rows]
    cost = fitted(sizes, [row.busy_ms_per_forward / 1e3 for row in rows], ("forward", "row"))
    fleet = Fleet(config, strategy, cost)
    answers = most_answers(rows)
    late = [(row.latency_p50 - predicted(fleet, row, answers).latency_p50) / 1e3 for row in rows]
    return replace(fleet, delay=max(0.0, fmean(late)))


def predicted(fleet: Fleet, row: Measured, answers: tuple[Answered, ...]) -> Figures:
    """Figures of one replica under the load of a row: equal arrivals, `answers` for its prompts."""
    load = row.load
    jobs = repeated_jobs(answers, row.rate, load.seconds, prompts=load.prompts, limit=load.max_tokens, seed=load.seed)
    return fleet.figures(jobs, before=each_once(answers, load.prompts, load.max_tokens) if load.warm else ())


def compared(fleet: Fleet, rows: Items[Measured], answers: tuple[Answered, ...]) -> list[Comparison]:
    """Measured figures beside those that the fleet predicts. Nothing of `rows` but their load is used to predict."""
    foreseen = [predicted(fleet, row, answers) for row in rows]
    found: list[Comparison] = []
    for name in COMPARED:
        take = attrgetter(name)
        seen, expected = median(map(take, rows)), median(map(take, foreseen))
        found.append(Comparison(name, seen, expected, expected / seen - 1 if seen else float("nan")))
    return found
