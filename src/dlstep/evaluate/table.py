"""The table of a run: a line for each task and set of options, as values, as text and as CSV."""

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from io import StringIO
from typing import Any, NamedTuple

from rich.console import Console

from ..text.words import printable
from ..views.figures import chance, interval, number, text_table, with_error
from .checkpoint import EvalRun, matched
from .intervals import Difference
from .metrics import ratio

FORMULAS = ("=", "+", "-", "@")


@dataclass(frozen=True, slots=True)
class TableLine:
    """Figures of a task with one set of options; `docs/evaluation.md` defines each column.

    Rates, the batch and padding describe the forward passes of a task, which all of its sets of
    options share; they are None if there are several sets. `equal` and the gains compare with a
    reference run, and are None without one.
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


def lines_of(run: EvalRun, against: EvalRun | None = None) -> list[TableLine]:
    """Return the table of a run, compared with a reference run if there is one.

    Raises ValueError for a reference run without a problem in common.
    """
    beside = {} if against is None else {group: found for group, _, found in matched(run, against)}
    if against is not None and not beside:
        raise ValueError(
            f"{run.folder} and {against.folder} have no task with the same set of options in both: decode the same tasks with "
            "the same options, or compare with a run that has a single set of options"
        )
    seconds, sets = run.seconds, Counter(task for task, _ in run.groups)
    settings = json.dumps(run.settings["key"], sort_keys=True)
    lines: list[TableLine] = []
    for group, sums in run.sums.items():
        work, alone = run.work[group[0]], sets[group[0]] == 1
        more: dict[str, Any] = {"scores": run.scores(group), "settings": settings}
        if (found := beside.get(group)) is not None:
            more |= {"equal": found.equal} | gain("accuracy", found.accuracy) | gain("speed", found.tokens_per_forward)
        lines.append(TableLine(
            *group, sums.count, sums.failed, sums.accuracy, *sums.accuracy_interval, sums.tokens,
            sums.tokens_per_forward, sums.tokens_per_forward_error, sums.tokens_per_step,
            sums.forwards_per_answer, sums.forwards_per_answer_error,
            sums.forwards, seconds[group], sums.computed, sums.tokens, sums.wasted,
            ratio(sums.tokens, work.wall_seconds) if alone else None,
            ratio(sums.tokens, work.decode_seconds) if alone else None,
            ratio(work.spans, work.forwards) if alone else None,
            ratio(work.padding, work.padding + work.rows) if alone else None, **more,
        ))  # fmt: skip
    return lines


def gain(name: str, found: Difference) -> dict[str, Any]:
    """Return the fields of a line for a gain."""
    value, *others = asdict(found).items()
    return {f"{name}_gain": value[1]} | {f"{name}_gain_{part}": each for part, each in others}


def as_csv(lines: Sequence[Any], kind: type[Any] = TableLine) -> str:
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


def print_lines(lines: Sequence[TableLine], console: Console) -> None:
    """Print the table, in pieces of at most 80 characters per line."""
    numbers = {options: str(place) for place, options in enumerate(dict.fromkeys(line.options for line in lines), 1)}
    several = len(numbers) > 1
    for options, place in numbers.items() if several else ():
        console.print(f"# {place}: {options}", markup=False, highlight=False, soft_wrap=True)
    for columns, rows in pieces(lines):
        heads = [*["#"] * several, *(column.head for column in columns)]
        labels = [[line.task, *[numbers[line.options]] * several] for line in lines]
        console.print(text_table(["task", *heads], [label + row for label, row in zip(labels, rows, strict=True)], (0,)))


class Column(NamedTuple):
    """A column of the table: its heading in a terminal and on a page, and the cell of a line."""

    head: str
    label: str
    cell: Callable[[TableLine], str]


ACCURACY_AND_SPEED = (
    Column("answers", "answers", lambda line: str(line.answers)),
    Column("right, %", "right answers, %", lambda line: interval(line.accuracy, line.accuracy_low, line.accuracy_high, 100, 1)),
    Column(
        "tok/fwd", "tokens per forward pass", lambda line: with_error(line.tokens_per_forward, line.tokens_per_forward_error, 2)
    ),
    Column("forwards", "forward passes", lambda line: str(line.forwards)),
    Column("seconds", "seconds", lambda line: f"{line.seconds:.1f} s"),
)  # fmt: skip
COST = (
    Column("failed", "failed", lambda line: str(line.failed)),
    Column(
        "fwd/answer", "forward passes per answer",
        lambda line: with_error(line.forwards_per_answer, line.forwards_per_answer_error, 1),
    ),
    Column("tok/step", "tokens per sampling forward pass", lambda line: f"{line.tokens_per_step:.2f}"),
    Column("computed", "rows computed", lambda line: str(line.computed)),
    Column("decided", "tokens unmasked", lambda line: str(line.decided)),
    Column("wasted", "rows computed in vain", lambda line: str(line.wasted)),
)  # fmt: skip
RATES = (
    Column("tok/s", "tokens per second, end to end", lambda line: number(line.tps_e2e, 0)),
    Column("in decode", "tokens per second, while decoding", lambda line: number(line.tps_decode, 0)),
    Column("batch", "requests per forward pass", lambda line: number(line.batch, 1)),
    Column("pad, %", "padding rows, %", lambda line: number(line.padding, 1, 100)),
)
AGAINST = (
    Column("equal, %", "equal answers, %", lambda line: number(line.equal, 1, 100)),
    Column(
        "right, % gained", "right answers gained, %",
        lambda line: interval(line.accuracy_gain, line.accuracy_gain_low, line.accuracy_gain_high, 100, 1, "+"),
    ),
    Column("p", "p", lambda line: chance(line.accuracy_gain_p)),
    Column(
        "tok/fwd gained", "tokens per forward pass gained",
        lambda line: interval(line.speed_gain, line.speed_gain_low, line.speed_gain_high, 1, 2, "+"),
    ),
    Column("p", "p", lambda line: chance(line.speed_gain_p)),
)  # fmt: skip


def pieces(lines: Sequence[TableLine]) -> Iterator[tuple[Sequence[Column], list[list[str]]]]:
    """Yield columns and cells of each part: accuracy and speed, readings, cost, rates, reference.

    A part without any figure is left out, and so are the readings if there is a single one.
    """
    readings = dict.fromkeys(name for line in lines if len(line.scores) > 1 for name in line.scores)
    scores = [
        Column(f"{name}, %", f"{name}, %", lambda line, name=name: number(line.scores.get(name), 1, 100)) for name in readings
    ]
    for columns in (ACCURACY_AND_SPEED, scores, COST, RATES, AGAINST):
        rows = [[column.cell(line) for column in columns] for line in lines]
        if any(cell != "-" for row in rows for cell in row):
            yield columns, rows
