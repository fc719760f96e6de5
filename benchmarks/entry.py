"""The command line of all benchmarks: options, progress on stderr, rows as a table or as JSON."""

import sys
from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from dlstep.cli.options import json_text
from dlstep.views.progress_bars import Bar


def listed(text: str) -> tuple[Any, ...]:
    """Return the values of a list like [8,32], or the only value."""
    value = yaml.safe_load(text)
    return tuple(value) if isinstance(value, list) else (value,)


def facts(row: Mapping[str, Any]) -> str:
    """Return the texts and integers of a row."""
    return ", ".join(f"{name} {value}" for name, value in row.items() if isinstance(value, str | int))


def run(
    summary: str | None,
    measure: Callable[..., Iterable[Mapping[str, Any]]],
    columns: tuple[str, ...] = (),
    **options: tuple[Any, str],
) -> None:
    """Call `measure` with the command-line options, and print the rows that it yields.

    `options` maps option names to default and help text. An option whose default is a tuple takes a
    list, one whose default is False takes no value. `columns` are those of the table; JSON has all.
    """
    prog = f"python -m benchmarks.{Path(sys.argv[0]).stem}"
    parser = ArgumentParser(prog=prog, description=summary, formatter_class=ArgumentDefaultsHelpFormatter)
    for name, (default, text) in options.items():
        if default is False:
            parser.add_argument(f"--{name}", action="store_true", help=text)
        else:
            kind = listed if isinstance(default, tuple) else type(default)
            parser.add_argument(f"--{name}", type=kind, default=default, help=text)
    parser.add_argument("--json", action="store_true", help="Print a JSON list of rows, and nothing else, on stdout.")
    values = vars(parser.parse_args())
    as_json = values.pop("json")
    rows = list[Mapping[str, Any]]()
    columns_of_bar = (SpinnerColumn(), TimeElapsedColumn(), TextColumn("{task.completed} {task.fields[note]}"))
    with Bar("measurements", None, *columns_of_bar) as bar:
        for number, row in enumerate(measure(**values), start=1):
            rows.append(row)
            bar.show(advance=1, note=facts(row))
            if bar.disable:
                print(f"measured {number}: {facts(row)}", file=sys.stderr)
    if as_json:
        print(json_text(rows))
    else:
        print_rows(rows, columns)


def print_rows(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = ()) -> None:
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
