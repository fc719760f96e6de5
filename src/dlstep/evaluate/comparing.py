"""A comparison: every entry answers every problem, in runs as those of `dlstep eval`, and a row for each set of options."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence as Items
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..run_lock import RunLock
from .crews import Alone
from .entries import Entry
from .frontier import Point, aup, frontier
from .items import read_documents
from .metrics import Answers, Pair, compared as gained
from .options import EvalOptions
from .runner import Show, evaluate, no_show
from .runs import Group, read

RUNS = "runs"
LEAST = 2  # problems that say how far apart problems are
Sums = dict[Group, tuple[Answers, str]]  # of a run, and why an answer failed


@dataclass(frozen=True, slots=True)
class Row:
    """An entry with one set of options on a task; `docs/evaluation.md` defines each column.

    Standard errors and what is compared by resampling are None where there is one problem only.
    """

    task: str
    strategy: str
    rule: str
    model: str
    options: Mapping[str, Any]
    problems: int
    failed: int
    accuracy: float
    accuracy_error: float | None
    tokens_per_forward: float
    tokens_per_forward_error: float | None
    forwards_per_answer: float
    forwards_per_answer_error: float | None
    on_frontier: bool
    to_best: float
    to_best_low: float | None
    to_best_high: float | None
    as_right: bool | None
    aup: float
    aup_best: float
    error: str


@dataclass(frozen=True, slots=True)
class Curve:
    """The rows of an entry on a task."""

    rows: tuple[Row, ...]

    @property
    def label(self) -> str:
        """The entry in few words."""
        return label_of(self.rows[0])

    @property
    def options(self) -> tuple[str, ...]:
        """The names of the options that are varied."""
        return tuple(self.rows[0].options)

    @property
    def fastest(self) -> Row | None:
        """The fastest row that is as right as the best, as far as these problems tell; None where there is none."""
        right = [row for row in self.rows if row.as_right]
        return max(right, key=lambda row: (row.tokens_per_forward, row.accuracy)) if right else None


def label_of(row: Row) -> str:
    """An entry in few words."""
    return ", ".join(filter(None, (row.strategy, Path(row.rule).stem)))


def value_of(row: Row) -> str:
    """The values of a row's options in few words."""
    return ", ".join(f"{value:g}" if isinstance(value, float) else str(value) for value in row.options.values())


def curves_of(rows: Items[Row]) -> dict[str, list[Curve]]:
    """The curves of each task."""
    found: dict[str, dict[tuple[str, str], list[Row]]] = {}
    for row in rows:
        found.setdefault(row.task, {}).setdefault((row.strategy, row.rule), []).append(row)
    return {task: [Curve(tuple(each)) for each in entries.values()] for task, entries in found.items()}


@contextmanager
def kept(folder: Path | None) -> Iterator[Path]:
    """The folder, or one that is gone afterwards."""
    if folder is not None:
        yield folder
        return
    with TemporaryDirectory() as name:
        yield Path(name)


def folder_of(entry: Entry) -> str:
    """The name of the folder of an entry's run."""
    return re.sub(r"[^\w.-]+", "_", f"{entry.strategy}-{entry.rule}" if entry.rule else entry.strategy).strip(".")


def compared(entries: Items[Entry], options: EvalOptions, folder: Path | None = None, *, show: Show = no_show) -> list[Row]:
    """The rows of all entries, task by task, on the problems that `options` say; their `out` says nothing here.

    The run of each entry stays in `folder`, below `runs`, where one that was broken off goes on. Raises ValueError for problems
    that cannot be read, and for a folder that holds another comparison.
    """
    if options.workers > 1 or options.grid != ((),):
        raise ValueError("EvalOptions of a comparison have no workers and no grid: entries say what is varied")
    documents = read_documents(options)
    with kept(folder) as where, closing(RunLock(where)):
        runs: list[Sums] = []
        folders = [where / RUNS / folder_of(entry) for entry in entries]
        for entry, own in zip(entries, folders, strict=True):
            chosen = replace(options, grid=entry.grid, out=str(own))
            told = {"engine": dict(entry.told), "eval": asdict(chosen) | {"grid": dict(entry.varied) or None}}
            before = Answers.total(sums for run in runs for sums, _ in run.values())
            evaluate(Alone(entry.engine), chosen, documents, told=told if entry.told else None, show=behind(before, show))
            runs.append({group: figures(pairs) for group, pairs in read(own).groups.items()})
        return rows_of(entries, folders, runs)


def behind(before: Answers, show: Show) -> Show:
    """Show a run's answers behind earlier ones."""
    return lambda done, score: show(before.count + done, before.score + score)


def figures(pairs: Items[Pair]) -> tuple[Answers, str]:
    """The sums over answers, and why the first that failed did."""
    return Answers.total(Answers.of(*pair) for pair in pairs), next((row["error"] for row, _ in pairs if row["error"]), "")


def rows_of(entries: Items[Entry], folders: Items[Path], runs: Items[Sums]) -> list[Row]:
    """The rows of runs that have ended."""
    rows: list[Row] = []
    for task in dict.fromkeys(group[0] for run in runs for group in run):
        points = {
            (number, group): Point((), sums)
            for number, run in enumerate(runs)
            for group, (sums, _) in run.items()
            if group[0] == task
        }
        best = max(points, key=lambda key: (points[key].accuracy, points[key].speed))
        against = by_document(read(folders[best[0]]).groups[best[1]])
        ahead = {(point.speed, point.accuracy) for point in frontier(points.values())}
        for number, entry in enumerate(entries):
            groups = {group: pairs for group, pairs in read(folders[number]).groups.items() if group[0] == task}
            area = aup([points[number, group] for group in groups], points[best].accuracy)
            for group, pairs in groups.items():
                point, (sums, error) = points[number, group], runs[number][group]
                gain = gained(by_document(pairs), against).accuracy
                known = (gain.low, gain.high, gain.high >= 0) if len(against) >= LEAST else (None, None, None)
                asked = (task, entry.strategy, entry.rule, entry.engine.name, json.loads(group[1]))
                on_frontier = (point.speed, point.accuracy) in ahead
                told: tuple[Any, ...] = (on_frontier, gain.value, *known, area, points[best].accuracy, error)
                rows.append(Row(*asked, *figures_of(sums), *told))
    return rows


def figures_of(sums: Answers) -> tuple[Any, ...]:
    """The figures of a row from `problems` on."""
    told = sums.count >= LEAST
    return (
        sums.count, sums.failed, sums.accuracy, sums.accuracy_error if told else None,
        sums.tokens_per_forward, sums.tokens_per_forward_error if told else None,
        sums.forwards_per_answer, sums.forwards_per_answer_error if told else None,
    )  # fmt: skip


def by_document(pairs: Items[Pair]) -> list[Pair]:
    """Answers in the order of the problems."""
    return sorted(pairs, key=lambda pair: pair[0]["document"])
