"""Rows of measurements: progress during the measurement, then a table or JSON."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

from rich.console import Console
from rich.table import Table

from ..views.progress_bars import measuring_bar
from .options import json_text

CHECKS = ("equal", "good")  # fields that record whether the measured result is right

Row = Mapping[str, Any]
R = TypeVar("R")


def followed(measured: Iterable[R], named: Callable[[R], str], total: int | None = None) -> list[R]:
    """Return the rows, with progress on stderr: a bar on a terminal, otherwise a line per row. `named` describes a row."""
    rows = list[R]()
    with measuring_bar(total) as show:
        for row in measured:
            rows.append(row)
            words = named(row)
            if show is not None:
                show(words)
            else:
                print(f"measured {len(rows)}{'' if total is None else f' of {total}'}: {words}", file=sys.stderr)
    return rows


def report(rows: Iterable[Any], columns: Sequence[str] = (), *, as_json: bool) -> int:
    """Print rows as JSON, or as a table of some columns. Return 1 if a check of a row failed, else 0."""
    values: list[Row] = [row if isinstance(row, dict) else asdict(row) for row in rows]
    if as_json:
        print(json_text(values))
    else:
        print_rows(values, columns)
    return int(any(row.get(name) is False for row in values for name in CHECKS))


def print_rows(rows: Sequence[Row], columns: Sequence[str] = ()) -> None:
    """Print a narrow table for 80 columns, whose headings may wrap between words.

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
