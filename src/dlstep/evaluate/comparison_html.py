"""A comparison as a self-contained HTML page: tables, pictures of the frontiers, and the command and versions."""

import platform
from base64 import b64encode
from collections.abc import Sequence as Items
from importlib.metadata import version

from .. import __version__
from ..text.words import counted
from ..views.figures import interval, with_error
from ..views.page import report_page
from .comparing import Curve, Row, curves_of, value_of
from .pictures import svg


def comparison_html(rows: Items[Row], *, command: str, left_out: Items[str] = (), notes: Items[str] = ()) -> str:
    """Return the page of a comparison; `command` is the command line that made it."""
    light, dark = (f"data:image/svg+xml;base64,{b64encode(svg(rows, dark=each).encode()).decode()}" for each in (False, True))
    return report_page(
        "comparison.html",
        tasks=curves_of(rows),
        curve_cells=curve_cells,
        row_cells=row_cells,
        counted=counted,
        light=light,
        dark=dark,
        notes=notes,
        left_out=left_out,
        command=command,
        versions=f"dlstep {__version__}, torch {version('torch')}, Python {platform.python_version()}",
    )


def curve_cells(curve: Curve) -> list[str]:
    """Return the cells of an entry: its AUP, and its fastest set of options that is as right as the best."""
    first, row = curve.rows[0], curve.fastest
    cells = [first.strategy, first.rule or "-", first.model, f"{curve.aup:.1f}"]
    if row is None:
        return [*cells, "none", "-", "-"]
    named = f"{', '.join(row.options)} {value_of(row)}".strip() or "as it is"
    return [*cells, named, *figures(row)[:2]]


def row_cells(row: Row) -> list[str]:
    """Return the cells of a set of options."""
    against = interval(row.to_best, row.to_best_low, row.to_best_high, 100, 1, "+")
    return [value_of(row) or "as it is", *figures(row), f"{row.seconds:.1f}", against, "yes" if row.as_right else "no"]


def figures(row: Row) -> list[str]:
    """Return accuracy, speed and cost with their intervals or standard errors."""
    return [
        interval(row.accuracy, row.accuracy_low, row.accuracy_high, 100, 1),
        with_error(row.tokens_per_forward, row.tokens_per_forward_error, 2),
        with_error(row.forwards_per_answer, row.forwards_per_answer_error, 1),
    ]
