"""Rows of measurements: progress while they are measured, then a table or JSON."""

import sys
from collections.abc import Iterable, Mapping, Sequence as Items
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from .json_text import json_text

CHECKS = ("equal", "good")  # fields that say whether what was measured is right

Row = Mapping[str, Any]


def followed(measured: Iterable[Any], total: int | None = None) -> list[dict[str, Any]]:
    """Return the rows of dataclasses. A bar on stderr, or a line for each row, shows how far the measurement is."""
    console, rows = Console(stderr=True), list[dict[str, Any]]()
    # Rows come a few at a time, half a minute apart: a spinner and a clock show that the measurement goes on meanwhile.
    columns = (SpinnerColumn(), TextColumn("measuring"), BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn())
    last = TextColumn("{task.description}")
    with Progress(*columns, last, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=total)
        for row in measured:
            rows.append(asdict(row))
            words = {name: value for name, value in rows[-1].items() if isinstance(value, str | int)}
            bar.update(task, advance=1, description=f"after {', '.join(map(str, words.values()))}")
            if bar.disable:
                done = str(len(rows)) if total is None else f"{len(rows)} of {total}"
                print(f"measured {done}: {', '.join(f'{name} {value}' for name, value in words.items())}", file=sys.stderr)
    return rows


def report(rows: Items[Row], columns: Items[str] = (), *, as_json: bool) -> int:
    """Print rows as JSON, or as a table of some columns. Return 1 if a check of a row failed, else 0."""
    if as_json:
        print(json_text(rows))
    else:
        print_rows(rows, columns)
    return int(any(row.get(name) is False for row in rows for name in CHECKS))


def print_rows(rows: Items[Row], columns: Items[str] = ()) -> None:
    """Print a table that fits a terminal of 80 columns: narrow, and its headings may wrap between words.

    Without `columns`, all are shown.
    """
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for name in columns or rows[0]:
        heading = name.replace("_", " ")
        widest = max(map(len, [*heading.split(), *(_cell(row[name]) for row in rows)]))
        table.add_column(heading, min_width=min(widest, 40))
    for row in rows:
        table.add_row(*(_cell(row[name]) for name in columns or row))
    Console().print(table)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if isinstance(value, float) else str(value)
