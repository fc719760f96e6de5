"""Tables of a run and of a comparison: lines of figures, and parts to print."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..text.words import printable
from .checkpoint import EvalRun, matched_gains
from .metrics import Answers, Difference, ratio, residuals, standard_error, wilson


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Figures of answers; `docs/evaluation.md` defines each column."""

    answers: int
    failed: int
    accuracy: float
    accuracy_low: float
    accuracy_high: float
    tokens: int
    tokens_per_forward: float
    tokens_per_forward_error: float | None
    forwards_per_answer: float
    forwards_per_answer_error: float | None
    forwards: int
    seconds: float


def figures_of(answers: Answers) -> dict[str, Any]:
    """Return the fields of `Figures`."""
    low, high = wilson(sum(answers.scores), len(answers.scores))
    return {
        "answers": len(answers.scores), "failed": answers.failed,
        "accuracy": answers.accuracy, "accuracy_low": low, "accuracy_high": high, "tokens": sum(answers.tokens),
        "tokens_per_forward": answers.tokens_per_forward,
        "tokens_per_forward_error": standard_error(residuals(answers.tokens, answers.forwards)),
        "forwards_per_answer": answers.forwards_per_answer, "forwards_per_answer_error": standard_error(answers.forwards),
        "forwards": sum(answers.forwards), "seconds": answers.seconds,
    }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLine(Figures):
    """Figures of a task with one set of options.

    `equal` and the gains compare with a reference run, and are None without one.
    """

    task: str
    options: str
    tokens_per_second: float
    scores: Mapping[str, float] = field(default_factory=dict)
    settings: str = ""
    equal: float | None = None
    accuracy_gain: Difference | None = None
    speed_gain: Difference | None = None


def lines_of(run: EvalRun, against: EvalRun | None = None) -> list[TableLine]:
    """Return the table of a run, compared with a reference run if there is one.

    Raises ValueError for a reference run without a problem in common.
    """
    gains = {} if against is None else dict(matched_gains(run, against))
    if against is not None and not gains:
        raise ValueError(
            f"{run.folder} and {against.folder} have no task with the same set of options in both: decode the same tasks with "
            "the same options, or compare with a run that has a single set of options"
        )
    settings = json.dumps(run.settings["key"], sort_keys=True)
    lines: list[TableLine] = []
    for group, pairs in run.groups.items():
        answers = Answers.of(pairs)
        lines.append(TableLine(
            task=group[0], options=group[1], **figures_of(answers), scores=run.scores(group), settings=settings,
            tokens_per_second=ratio(sum(answers.tokens), answers.seconds), **gains.get(group, {}),
        ))  # fmt: skip
    return lines


class TablePart(NamedTuple):
    """A part of a table, for a terminal or a page; the first `left` columns are labels."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int


def print_parts(parts: Sequence[TablePart], console: Console) -> None:
    """Print parts, in 80 columns."""
    for part in parts:
        if part.title:
            console.print(printable(part.title), markup=False, highlight=False, soft_wrap=True)
        table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
        for place, head in enumerate(part.heads):
            table.add_column(head, justify="left" if place < part.left else "right", overflow="fold")
        for row in part.rows:
            table.add_row(*map(Text, row))
        console.print(table)


Line = TypeVar("Line", bound=Figures)
Column = tuple[str, Callable[[Line], str]]  # heading, and the cell of a line
ACCURACY: Column[Figures] = (
    "right, %", lambda line: interval(line.accuracy, line.accuracy_low, line.accuracy_high, 100, 1)
)  # fmt: skip
SPEED: Column[Figures] = (
    "tok/fwd", lambda line: with_error(line.tokens_per_forward, line.tokens_per_forward_error, 2)
)  # fmt: skip
COST: Column[Figures] = (
    "fwd/answer", lambda line: with_error(line.forwards_per_answer, line.forwards_per_answer_error, 1)
)  # fmt: skip
SECONDS: Column[Figures] = ("seconds", lambda line: f"{line.seconds:.1f} s")
RUN: tuple[tuple[Column[TableLine], ...], ...] = (
    (("answers", lambda line: str(line.answers)), ACCURACY, SPEED, COST, SECONDS),
    (
        ("failed", lambda line: str(line.failed)), ("tokens", lambda line: str(line.tokens)),
        ("forwards", lambda line: str(line.forwards)), ("speed", lambda line: f"{line.tokens_per_second:.0f} tok/s"),
    ),
    (
        ("equal, %", lambda line: number(line.equal, 1, 100)),
        ("right, % gained", lambda line: gained(line.accuracy_gain, 100, 1)),
        ("p", lambda line: chance(line.accuracy_gain and line.accuracy_gain.p)),
        ("tok/fwd gained", lambda line: gained(line.speed_gain, 1, 2)),
        ("p", lambda line: chance(line.speed_gain and line.speed_gain.p)),
    ),
)  # fmt: skip


def gained(found: Difference | None, scale: float, places: int) -> str:
    """Return a gain with its interval."""
    return "-" if found is None else interval(found.value, found.low, found.high, scale, places, "+")


def run_parts(lines: Sequence[TableLine]) -> Iterator[TablePart]:
    """Yield the sets of options, accuracy and speed, other figures, several scores of a task, and the gains."""
    numbers = {options: str(place) for place, options in enumerate(dict.fromkeys(line.options for line in lines), 1)}
    several = len(numbers) > 1
    if several:
        yield TablePart("", ("#", "options"), [(place, options) for options, place in numbers.items()], 2)
    readings = dict.fromkeys(name for line in lines if len(line.scores) > 1 for name in line.scores)
    scores = tuple((f"{name}, %", lambda line, name=name: number(line.scores.get(name), 1, 100)) for name in readings)
    labels = [[line.task, *[numbers[line.options]] * several] for line in lines]
    heads = ["task", *["#"] * several]
    for columns in (RUN[0], scores, *RUN[1:]):
        rows = [[cell(line) for _, cell in columns] for line in lines]
        if any(cell != "-" for row in rows for cell in row):
            yield TablePart(
                "", [*heads, *(head for head, _ in columns)], [label + row for label, row in zip(labels, rows, strict=True)], 1
            )


def number(value: float | None, places: int, scale: float = 1.0) -> str:
    """Return a figure, or a dash if there is none."""
    return "-" if value is None else f"{scale * value:.{places}f}"


def with_error(value: float, error: float | None, places: int) -> str:
    """Return a figure and its standard error, if it has one."""
    return f"{value:.{places}f}" + (f" ±{error:.{places}f}" if error is not None else "")


def interval(value: float, low: float, high: float, scale: float, places: int, sign: str = "") -> str:
    """Return a figure and its interval; with `sign` "+", the sign is also printed if it is positive."""
    texts = [f"{scale * figure:{sign}.{places}f}" for figure in (value, low, high)]
    return f"{texts[0]} [{texts[1]}, {texts[2]}]"


def chance(p: float | None) -> str:
    """Return a p-value as text. Values below 0.001 become `<0.001`, never 0."""
    return "<0.001" if p is not None and p < 0.001 else number(p, 3)
