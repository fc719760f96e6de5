"""Comparisons: every entry answers every problem; each set of options gives a row."""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from ..engine.run_lock import RunLock
from .answerer_pool import Answering
from .checkpoint import failure, read
from .entries import EvalEntry
from .intervals import against_best
from .items import read_documents
from .metrics import Answers, Point, aup, frontier
from .options import EvalOptions
from .runner import Show, evaluate, no_show

RUNS = "runs"
LEAST = 2  # problems that a standard error needs


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """An entry with one set of options on a task; `docs/evaluation.md` defines each column."""

    task: str
    strategy: str
    rule: str
    quantization: str
    model: str
    options: Mapping[str, Any]
    problems: int
    failed: int
    accuracy: float
    accuracy_low: float
    accuracy_high: float
    tokens_per_forward: float
    tokens_per_forward_error: float | None
    forwards_per_answer: float
    forwards_per_answer_error: float | None
    seconds: float
    on_frontier: bool
    to_best: float
    to_best_low: float
    to_best_high: float
    as_right: bool
    aup: float
    aup_best: float
    error: str


@dataclass(frozen=True, slots=True)
class Curve:
    """The rows of an entry on a task."""

    rows: tuple[ComparisonRow, ...]

    @property
    def label(self) -> str:
        """A short name of the entry."""
        return ", ".join(filter(None, (self.rows[0].strategy, Path(self.rows[0].rule).stem, self.rows[0].quantization)))

    @property
    def fastest(self) -> ComparisonRow | None:
        """The fastest row that is not significantly worse than the best; None if there is none."""
        right = [row for row in self.rows if row.as_right]
        return max(right, key=lambda row: (row.tokens_per_forward, row.accuracy)) if right else None


def value_of(row: ComparisonRow) -> str:
    """Return the values of a row's options as short text."""
    return ", ".join(f"{value:g}" if isinstance(value, float) else str(value) for value in row.options.values())


def curves_of(rows: Sequence[ComparisonRow]) -> dict[str, list[Curve]]:
    """Return the curves of each task."""
    by_task: dict[str, dict[tuple[str, ...], list[ComparisonRow]]] = {}
    for row in rows:
        by_task.setdefault(row.task, {}).setdefault((row.strategy, row.rule, row.quantization), []).append(row)
    return {task: [Curve(tuple(own)) for own in by_entry.values()] for task, by_entry in by_task.items()}


def folder_of(entry: EvalEntry) -> str:
    """Return the name of the folder of an entry's run."""
    names = filter(None, (entry.strategy, entry.rule, entry.quantization))
    return re.sub(r"[^\w.-]+", "_", "-".join(names)).strip(".")


def compared(
    entries: Sequence[EvalEntry], options: EvalOptions, folder: Path | None = None, *, show: Show = no_show
) -> list[ComparisonRow]:
    """Return the rows of all entries on the problems that `options` select, task by task.

    The run of each entry is stored in `folder`, below `runs`, where an interrupted run resumes;
    `options.out` is ignored. Raises ValueError for problems that cannot be read, and for a folder
    that holds another comparison.
    """
    if options.workers > 1 or options.grid != ((),):
        raise ValueError("EvalOptions of a comparison have no workers and no grid: the entries define the values to compare")
    documents, results, sums = read_documents(options), list[Result](), Answers()
    with nullcontext(folder) if folder else TemporaryDirectory() as root, closing(RunLock(Path(root))):
        for entry in entries:
            out = Path(root) / RUNS / folder_of(entry)
            chosen = replace(options, grid=entry.grid, out=str(out))
            given = {"engine": dict(entry.given_options), "eval": asdict(chosen) | {"grid": dict(entry.varied) or None}}
            evaluate(
                Answering(entry.engine), chosen, documents, given_options=given if entry.given_options else None,
                show=lambda done, score, sums=sums: show(sums.count + done, sums.score + score),
            )  # fmt: skip
            results += results_in(entry, out)
            sums = Answers.total(result.sums for result in results)
    return [row for task in documents for row in rows_of([result for result in results if result.task == task])]


@dataclass(frozen=True, slots=True)
class Result(Point):
    """An entry's answers with a set of options to a task; `error` is that of the first failure."""

    entry: EvalEntry
    task: str
    scores: Sequence[float]
    seconds: float
    error: str


def results_in(entry: EvalEntry, folder: Path) -> list[Result]:
    """Return the results of a complete run."""
    run, results = read(folder), list[Result]()
    sums, seconds = run.sums, run.seconds
    for group, pairs in run.groups.items():
        options = tuple(json.loads(group[1]).items())
        scores = [row["score"] for row, _ in sorted(pairs, key=lambda pair: pair[0]["document"])]
        error = next((failure(row) for row, _ in pairs if row["error"]), "")
        results.append(Result(options, sums[group], entry, group[0], scores, seconds[group], error))
    return results


def rows_of(results: Sequence[Result]) -> list[ComparisonRow]:
    """Return the rows of all results of a task."""
    best = max(result.accuracy for result in results)
    ahead = {(point.speed, point.accuracy) for point in frontier(results)}
    distances = against_best(np.array([result.scores for result in results]).T)
    rows: list[ComparisonRow] = []
    for result, distance in zip(results, distances, strict=True):
        entry, sums = result.entry, result.sums
        area = aup([point for point in results if point.entry is entry], best)
        several = sums.count >= LEAST
        rows.append(ComparisonRow(
            result.task, entry.strategy, entry.rule, entry.quantization, entry.engine.name, dict(result.options),
            sums.count, sums.failed, sums.accuracy, *sums.accuracy_interval,
            sums.tokens_per_forward, sums.tokens_per_forward_error if several else None,
            sums.forwards_per_answer, sums.forwards_per_answer_error if several else None,
            result.seconds, (result.speed, result.accuracy) in ahead, distance.value, distance.low, distance.high,
            distance.best, area, best, result.error,
        ))  # fmt: skip
    return rows
