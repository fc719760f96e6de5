"""Comparisons: every entry answers every problem, as in `dlstep eval`; each set of options gives a
row."""

import json
import re
from collections.abc import Mapping, Sequence as Items
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from ..engine.run_lock import RunLock
from .checkpoint import read
from .crews import Answering
from .entries import Entry
from .intervals import against_best
from .items import read_documents
from .metrics import Answers, Point, aup, frontier
from .options import EvalOptions
from .runner import Show, evaluate, no_show

RUNS = "runs"
LEAST = 2  # problems that a standard error needs


@dataclass(frozen=True, slots=True)
class Row:
    """An entry with one set of options on a task; `docs/evaluation.md` defines each column.

    Standard errors are None if there is one problem only.
    """

    task: str
    strategy: str
    rule: str
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

    rows: tuple[Row, ...]

    @property
    def label(self) -> str:
        """A short name of the entry."""
        return label_of(self.rows[0])

    @property
    def aup(self) -> float:
        """The area under the curve."""
        return self.rows[0].aup

    @property
    def options(self) -> tuple[str, ...]:
        """The names of the options that are varied."""
        return tuple(self.rows[0].options)

    @property
    def fastest(self) -> Row | None:
        """The fastest row that is not significantly worse than the best; None if there is none."""
        right = [row for row in self.rows if row.as_right]
        return max(right, key=lambda row: (row.tokens_per_forward, row.accuracy)) if right else None


def label_of(row: Row) -> str:
    """Return a short name of the entry of a row."""
    return ", ".join(filter(None, (row.strategy, Path(row.rule).stem)))


def value_of(row: Row) -> str:
    """Return the values of a row's options as short text."""
    return ", ".join(f"{value:g}" if isinstance(value, float) else str(value) for value in row.options.values())


def curves_of(rows: Items[Row]) -> dict[str, list[Curve]]:
    """Return the curves of each task."""
    found: dict[str, dict[tuple[str, str], list[Row]]] = {}
    for row in rows:
        found.setdefault(row.task, {}).setdefault((row.strategy, row.rule), []).append(row)
    return {task: [Curve(tuple(each)) for each in entries.values()] for task, entries in found.items()}


def folder_of(entry: Entry) -> str:
    """Return the name of the folder of an entry's run."""
    return re.sub(r"[^\w.-]+", "_", f"{entry.strategy}-{entry.rule}" if entry.rule else entry.strategy).strip(".")


def compared(entries: Items[Entry], options: EvalOptions, folder: Path | None = None, *, show: Show = no_show) -> list[Row]:
    """Return the rows of all entries, task by task, on the problems that `options` select; `options.out` is ignored.

    The run of each entry is stored in `folder`, below `runs`, where an interrupted run resumes. Raises ValueError for problems
    that cannot be read, and for a folder that holds another comparison.
    """
    if options.workers > 1 or options.grid != ((),):
        raise ValueError("EvalOptions of a comparison have no workers and no grid: the entries define the values to compare")
    documents, results, sums = read_documents(options), list[Result](), Answers()
    with nullcontext(folder) if folder else TemporaryDirectory() as root, closing(RunLock(Path(root))):
        for entry in entries:
            out = Path(root) / RUNS / folder_of(entry)
            chosen = replace(options, grid=entry.grid, out=str(out))
            told = {"engine": dict(entry.told), "eval": asdict(chosen) | {"grid": dict(entry.varied) or None}}
            shown = partial(show_after, sums, show)
            evaluate(Answering(entry.engine), chosen, documents, told=told if entry.told else None, show=shown)
            results += results_in(entry, out)
            sums = Answers.total(result.sums for result in results)
    return [row for task in documents for row in rows_of([result for result in results if result.task == task])]


def show_after(earlier: Answers, show: Show, done: int, score: float) -> None:
    """Show the answers of a run, counted after those of earlier runs."""
    show(earlier.count + done, earlier.score + score)


@dataclass(frozen=True, slots=True)
class Result(Point):
    """The answers of an entry with a set of options to a task: scores by problem, and the error of the first failure."""

    entry: Entry
    task: str
    scores: Items[float]
    seconds: float
    error: str


def results_in(entry: Entry, folder: Path) -> list[Result]:
    """Return the results of a complete run."""
    run = read(folder)
    sums, seconds, found = run.sums, run.seconds, list[Result]()
    for group, pairs in run.groups.items():
        task, options = group
        scores = [row["score"] for row, _ in sorted(pairs, key=lambda pair: pair[0]["document"])]
        error = next((row["error"] for row, _ in pairs if row["error"]), "")
        found.append(Result(tuple(json.loads(options).items()), sums[group], entry, task, scores, seconds[group], error))
    return found


def rows_of(results: Items[Result]) -> list[Row]:
    """Return the rows of all results of a task."""
    best = max(result.accuracy for result in results)
    ahead = {(point.speed, point.accuracy) for point in frontier(results)}
    standings = against_best(np.array([result.scores for result in results]).T)
    rows: list[Row] = []
    for result, standing in zip(results, standings, strict=True):
        entry, sums = result.entry, result.sums
        area = aup([each for each in results if each.entry is entry], best)
        several = sums.count >= LEAST
        rows.append(
            Row(
                result.task, entry.strategy, entry.rule, entry.engine.name, dict(result.options),
                sums.count, sums.failed, sums.accuracy, *sums.accuracy_interval,
                sums.tokens_per_forward, sums.tokens_per_forward_error if several else None,
                sums.forwards_per_answer, sums.forwards_per_answer_error if several else None,
                result.seconds, (result.speed, result.accuracy) in ahead, standing.value, standing.low, standing.high,
                standing.best, area, best, result.error,
            )
        )  # fmt: skip
    return rows
