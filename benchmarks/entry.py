"""The command line of all benchmarks: options, progress on stderr, rows as a table or as JSON."""

import sys
from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn

from dlstep.cli.rows import followed, report
from dlstep.core import DlstepError


def run(
    summary: str | None, measure: Callable[..., Iterable[Any]], columns: tuple[str, ...] = (), **options: tuple[Any, str]
) -> NoReturn:
    """Call `measure` with the command-line options, print the rows that it yields, and exit.

    `options` maps option names to default and help text. A tuple as default allows one or more
    values. `columns` are those of the table; JSON has all.
    """
    prog = f"python -m benchmarks.{Path(sys.argv[0]).stem}"
    parser = ArgumentParser(prog=prog, description=summary, formatter_class=ArgumentDefaultsHelpFormatter)
    for name, (default, text) in options.items():
        one, nargs = (default[0], "+") if isinstance(default, tuple) else (default, None)
        parser.add_argument(f"--{name}", type=type(one), nargs=nargs, default=default, help=text)
    parser.add_argument("--json", action="store_true", help="Print a JSON list of rows, and nothing else, on stdout.")
    values = vars(parser.parse_args())
    as_json = values.pop("json")
    try:
        rows = followed(measure(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}))
    except (ValueError, OSError, DlstepError) as error:
        parser.exit(2, f"{parser.prog}: error: {error}\n")
    parser.exit(report(rows, columns, as_json=as_json))
