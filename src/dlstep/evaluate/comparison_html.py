"""A comparison as a self-contained HTML page."""

import platform
from base64 import b64encode
from collections.abc import Sequence
from importlib.metadata import version

from .. import __version__
from ..text.words import counted
from ..views.figures import interval, with_error
from ..views.page import report_page
from .comparing import ComparisonRow, Curve, curves_of, value_of
from .pictures import svg


def comparison_html(
    rows: Sequence[ComparisonRow], *, command: str, left_out: Sequence[str] = (), notes: Sequence[str] = ()
) -> str:
    """Return the page of a comparison; `command` is the command line that made it."""
    light, dark = (f"data:image/svg+xml;base64,{b64encode(svg(rows, dark=each).encode()).decode()}" for each in (False, True))
    return report_page(
        "comparison.html", tasks=curves_of(rows), curve_cells=curve_cells, row_cells=row_cells, counted=counted,
        light=light, dark=dark, notes=notes, left_out=left_out, command=command,
        versions=f"dlstep {__version__}, torch {version('torch')}, Python {platform.python_version()}",
    )  # fmt: skip


def curve_cells(curve: Curve) -> list[str]:
    """Return the cells of an entry: its AUP, and its fastest set as accurate as the best."""
    first, row = curve.rows[0], curve.fastest
    cells = [", ".join(filter(None, (first.strategy, first.quantization))), first.rule or "-", first.model, f"{first.aup:.1f}"]
    if row is None:
        return [*cells, "none", "-", "-"]
    named = f"{', '.join(row.options)} {value_of(row)}".strip() or "as it is"
    return [*cells, named, *figures(row)[:2]]


def row_cells(row: ComparisonRow) -> list[str]:
    """Return the cells of a set of options."""
    against = interval(row.to_best, row.to_best_low, row.to_best_high, 100, 1, "+")
    return [value_of(row) or "as it is", *figures(row), f"{row.seconds:.1f}", against, "yes" if row.as_right else "no"]


def figures(row: ComparisonRow) -> list[str]:
    """Return accuracy, speed and cost with their intervals or standard errors."""
    return [
        interval(row.accuracy, row.accuracy_low, row.accuracy_high, 100, 1),
        with_error(row.tokens_per_forward, row.tokens_per_forward_error, 2),
        with_error(row.forwards_per_answer, row.forwards_per_answer_error, 1),
    ]
