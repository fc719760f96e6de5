"""The table of a run: a line for each task and set of options, as values, as text and as CSV."""

import csv
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence as Items
from dataclasses import asdict, dataclass, field, fields, replace
from io import StringIO
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..text.words import printable
from .metrics import Answers, ratio
from .runs import Run, matched, shared_seconds

FORMULAS = ("=", "+", "-", "@")


@dataclass(frozen=True, slots=True)
class Line:
    """Figures of a task with one set of options; `docs/evaluation.md` defines each column.

    Rates, the batch and padding describe the forward passes of a task, which all of its sets of options share; they are None if
    there are several sets. `equal` and the gains compare with a reference run, and are None without one.
    """

    task: str
    options: str
    answers: int
    failed: int
    accuracy: float
    accuracy_low: float
    accuracy_high: float
    tokens: int
    tokens_per_forward: float
    tokens_per_forward_error: float
    tokens_per_step: float
    forwards_per_answer: float
    forwards_per_answer_error: float
    forwards: int
    seconds: float
    computed: int
    decided: int
    wasted: int
    tps_e2e: float | None
    tps_decode: float | None
    batch: float | None
    padding: float | None
    scores: Mapping[str, float] = field(default_factory=dict)
    settings: str = ""
    equal: float | None = None
    accuracy_gain: float | None = None
    accuracy_gain_low: float | None = None
    accuracy_gain_high: float | None = None
    accuracy_gain_p: float | None = None
    accuracy_gain_method: str | None = None
    speed_gain: float | None = None
    speed_gain_low: float | None = None
    speed_gain_high: float | None = None
    speed_gain_p: float | None = None
    speed_gain_method: str | None = None


def lines_of(run: Run, against: Run | None = None) -> list[Line]:
    """Return the table of a run, compared with a reference run if there is one.

    Raises ValueError for a reference run without a problem in common.
    """
    beside = {} if against is None else {group: found for group, _, found in matched(run, against)}
    if against is not None and not beside:
        raise ValueError(
            f"{run.folder} and {against.folder} have no task with the same set of options in both: decode the same tasks with "
            "the same options, or compare with a run that has a single set of options"
        )
    lines: list[Line] = []
    sums_of = {group: Answers.total(Answers.of(*pair) for pair in pairs) for group, pairs in run.groups.items()}
    seconds, sets = shared_seconds(run, sums_of), Counter(task for task, _ in sums_of)
    for group, sums in sums_of.items():
        work, alone = run.work[group[0]], sets[group[0]] == 1
        found = beside.get(group)
        more: dict[str, Any] = {"scores": run.scores(group)}
        if found is not None:
            more["equal"] = found.equal
            for name, gain in (("accuracy", found.accuracy), ("speed", found.tokens_per_forward)):
                more |= {
                    f"{name}_gain{'_' * (part != 'value')}{part.removeprefix('value')}": v for part, v in asdict(gain).items()
                }
        lines.append(
            Line(
                *group, sums.count, sums.failed, sums.accuracy, *sums.accuracy_interval, sums.tokens,
                sums.tokens_per_forward, sums.tokens_per_forward_error, sums.tokens_per_step,
                sums.forwards_per_answer, sums.forwards_per_answer_error,
                sums.forwards, seconds[group], sums.computed, sums.tokens, sums.wasted,
                ratio(sums.tokens, work.wall_seconds) if alone else None,
                ratio(sums.tokens, work.decode_seconds) if alone else None,
                work.batch if alone else None, work.padding_share if alone else None, **more,
            )
        )  # fmt: skip
    settings = json.dumps(run.asked["key"], sort_keys=True)
    return [replace(line, settings=settings) for line in lines]


def as_csv(lines: Items[Any], kind: type[Any] = Line) -> str:
    """Return a table as CSV, one column for each field of `kind`; a missing figure is empty."""
    text = StringIO()
    writer = csv.DictWriter(text, [field.name for field in fields(kind)], lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: harmless_cell(value) for name, value in asdict(line).items()} for line in lines)
    return text.getvalue()


def harmless_cell(value: object) -> object:
    """Return a value as a cell on one line that no spreadsheet program interprets as a formula."""
    if isinstance(value, dict):
        value = json.dumps(value, sort_keys=True)
    if not isinstance(value, str):
        return value
    return f"'{printable(value)}" if value.startswith(FORMULAS) else printable(value)


def print_lines(lines: Items[Line], console: Console) -> None:
    """Print the table, in pieces of at most 80 characters per line."""
    several = len({line.options for line in lines}) > 1
    if several:
        for number, options in enumerate(dict.fromkeys(line.options for line in lines), 1):
            console.print(f"# {number}: {options}", markup=False, highlight=False, soft_wrap=True)
    numbers = {options: str(number) for number, options in enumerate(dict.fromkeys(line.options for line in lines), 1)}
    for heads, cells in pieces(lines):
        table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
        table.add_column("task")
        for head in (*(["#"] if several else []), *heads):
            table.add_column(head, justify="right")
        for line, texts in zip(lines, cells, strict=True):
            table.add_row(*map(Text, (line.task, *([numbers[line.options]] if several else []), *texts)))
        console.print(table)


def pieces(lines: Items[Line]) -> Iterator[tuple[tuple[str, ...], list[tuple[str, ...]]]]:
    """Yield headings and cells of each piece: accuracy and speed, readings, cost, rates, and the reference run."""
    yield (
        ("answers", "right, %", "tok/fwd", "forwards", "seconds"),
        [
            (
                str(line.answers), interval(line.accuracy, line.accuracy_low, line.accuracy_high, 100, 1),
                with_error(line.tokens_per_forward, line.tokens_per_forward_error, 2), str(line.forwards),
                f"{line.seconds:.1f} s",
            )
            for line in lines
        ],
    )  # fmt: skip
    if names := tuple(dict.fromkeys(name for line in lines if len(line.scores) > 1 for name in line.scores)):
        percents = [{name: 100 * score for name, score in line.scores.items()} for line in lines]
        yield tuple(f"{name}, %" for name in names), [tuple(number(each.get(name), 1) for name in names) for each in percents]
    yield (
        ("failed", "fwd/answer", "tok/step", "computed", "decided", "wasted"),
        [
            (
                str(line.failed), with_error(line.forwards_per_answer, line.forwards_per_answer_error, 1),
                f"{line.tokens_per_step:.2f}", str(line.computed), str(line.decided), str(line.wasted),
            )
            for line in lines
        ],
    )  # fmt: skip
    if any(line.batch is not None for line in lines):
        yield (
            ("tok/s", "in decode", "batch", "pad, %"),
            [
                (
                    number(line.tps_e2e, 0), number(line.tps_decode, 0), number(line.batch, 1),
                    number(None if line.padding is None else 100 * line.padding, 1),
                )
                for line in lines
            ],
        )  # fmt: skip
    if any(line.equal is not None for line in lines):
        yield (
            ("equal, %", "right, % gained", "p", "tok/fwd gained", "p"),
            [
                (
                    number(None if line.equal is None else 100 * line.equal, 1),
                    interval(line.accuracy_gain, line.accuracy_gain_low, line.accuracy_gain_high, 100, 1, "+"),
                    chance(line.accuracy_gain_p),
                    interval(line.speed_gain, line.speed_gain_low, line.speed_gain_high, 1, 2, "+"),
                    chance(line.speed_gain_p),
                )
                for line in lines
            ],
        )


def number(value: float | None, places: int) -> str:
    """Return a figure, or a dash if there is none."""
    return "-" if value is None else f"{value:.{places}f}"


def with_error(value: float, error: float | None, places: int, scale: float = 1.0) -> str:
    """Return a figure and its standard error, if it has one."""
    return f"{scale * value:.{places}f}" + (f" ±{scale * error:.{places}f}" if error is not None else "")


def interval(value: float | None, low: float | None, high: float | None, scale: float, places: int, sign: str = "") -> str:
    """Return a figure and its interval; with `sign` "+", the sign is also printed if it is positive."""
    if value is None or low is None or high is None:
        return "-" if value is None else f"{scale * value:{sign}.{places}f}"
    texts = [f"{scale * each:{sign}.{places}f}" for each in (value, low, high)]
    return f"{texts[0]} [{texts[1]}, {texts[2]}]"


def chance(p: float | None) -> str:
    """Return a p-value as text, `<0.001` if it is smaller; it is never printed as 0."""
    return "<0.001" if p is not None and p < 0.001 else number(p, 3)
