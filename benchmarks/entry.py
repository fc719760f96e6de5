"""The command line of all benchmarks: options, progress on stderr, rows as a table or as JSON."""

import sys
from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

import yaml

from dlstep.cli.rows import followed, report


def listed(text: str) -> tuple[Any, ...]:
    """Return the values of a list like [8,32], or the only value."""
    value = yaml.safe_load(text)
    return tuple(value) if isinstance(value, list) else (value,)


def facts(row: Any) -> str:
    """Return the texts and integers of a row."""
    values: Mapping[str, Any] = row if isinstance(row, dict) else asdict(row)
    return ", ".join(f"{name} {value}" for name, value in values.items() if isinstance(value, str | int))


def run(
    summary: str | None, measure: Callable[..., Iterable[Any]], columns: tuple[str, ...] = (), **options: tuple[Any, str]
) -> NoReturn:
    """Call `measure` with the command-line options, print the rows that it yields, and exit.

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
    parser.exit(report(followed(measure(**values), facts), columns, as_json=as_json))
