"""A comparison: every entry answers every problem, in runs like those of `dlstep eval`; each set of options gives a row."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence as Items
from contextlib import closing, contextmanager
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from ..engine.run_lock import RunLock
from .crews import Alone
from .entries import Entry
from .frontier import Point, aup, frontier
from .intervals import against_best
from .items import read_documents
from .metrics import Answers
from .options import EvalOptions
from .runner import Show, evaluate, no_show
from .runs import Group, read, shared_seconds

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


@contextmanager
def kept(folder: Path | None) -> Iterator[Path]:
    """Yield the folder, or a temporary folder if it is None."""
    if folder is not None:
        yield folder
        return
    with TemporaryDirectory() as name:
        yield Path(name)


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
    documents = read_documents(options)
    with kept(folder) as where, closing(RunLock(where)):
        runs: list[dict[Group, Found]] = []
        for entry in entries:
            out = where / RUNS / folder_of(entry)
            chosen = replace(options, grid=entry.grid, out=str(out))
            told = {"engine": dict(entry.told), "eval": asdict(chosen) | {"grid": dict(entry.varied) or None}}
            before = Answers.total(found.sums for run in runs for found in run.values())
            evaluate(Alone(entry.engine), chosen, documents, told=told if entry.told else None, show=behind(before, show))
            runs.append(found_in(out))
        return rows_of(entries, runs)


def behind(before: Answers, show: Show) -> Show:
    """Return a `show` that counts a run's answers after earlier ones."""
    return lambda done, score: show(before.count + done, before.score + score)


@dataclass(frozen=True, slots=True)
class Found:
    """The answers to a task with a set of options: sums, scores by problem, seconds, and the error of the first failure."""

    sums: Answers
    scores: Items[float]
    seconds: float
    error: str


def found_in(folder: Path) -> dict[Group, Found]:
    """Return the results of a complete run."""
    run = read(folder)
    groups = run.groups
    sums = {group: Answers.total(Answers.of(*pair) for pair in pairs) for group, pairs in groups.items()}
    seconds = shared_seconds(run, sums)
    found: dict[Group, Found] = {}
    for group, pairs in groups.items():
        scores = [row["score"] for row, _ in sorted(pairs, key=lambda pair: pair[0]["document"])]
        found[group] = Found(sums[group], scores, seconds[group], next((row["error"] for row, _ in pairs if row["error"]), ""))
    return found


def rows_of(entries: Items[Entry], runs: Items[Mapping[Group, Found]]) -> list[Row]:
    """Return the rows of complete runs."""
    rows: list[Row] = []
    for task in dict.fromkeys(group[0] for run in runs for group in run):
        each = [
            (entry, group[1], found)
            for entry, run in zip(entries, runs, strict=True)
            for group, found in run.items()
            if group[0] == task
        ]
        points = [Point((), found.sums) for _, _, found in each]
        best = max(point.accuracy for point in points)
        ahead = {(point.speed, point.accuracy) for point in frontier(points)}
        curves = [[Point((), found.sums) for group, found in run.items() if group[0] == task] for run in runs]
        areas = {folder_of(entry): aup(curve, best) for entry, curve in zip(entries, curves, strict=True)}
        standings = against_best(np.array([found.scores for _, _, found in each]).T)
        for (entry, options, found), point, standing in zip(each, points, standings, strict=True):
            asked = (task, entry.strategy, entry.rule, entry.engine.name, json.loads(options))
            on_frontier = (point.speed, point.accuracy) in ahead
            told: tuple[Any, ...] = (on_frontier, *astuple(standing), areas[folder_of(entry)], best, found.error)
            rows.append(Row(*asked, *figures_of(found), *told))
    return rows


def figures_of(found: Found) -> tuple[Any, ...]:
    """Return the figures of a row from `problems` to `seconds`."""
    sums = found.sums
    several = sums.count >= LEAST
    return (
        sums.count, sums.failed, sums.accuracy, *sums.accuracy_interval,
        sums.tokens_per_forward, sums.tokens_per_forward_error if several else None,
        sums.forwards_per_answer, sums.forwards_per_answer_error if several else None, found.seconds,
    )  # fmt: skip
