"""Formatting of numbers with their errors, tables of them for terminals, and what plots share."""

from collections.abc import Container, Iterable, Sequence
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from ..core.checks import short
from ..extras import require

# Distinguishable with any colour vision.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d31", "#7f7f7f")
OTHERS = "#a0a0a0"


def text_table(heads: Sequence[str], rows: Iterable[Sequence[str]], left: Container[int] = ()) -> Table:
    """Return a table for a terminal; the columns whose indexes are in `left` are left-aligned."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for place, head in enumerate(heads):
        table.add_column(head, justify="left" if place in left else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def number(value: float | None, places: int, scale: float = 1.0) -> str:
    """Return a figure, or a dash if there is none."""
    return "-" if value is None else f"{scale * value:.{places}f}"


def with_error(value: float, error: float | None, places: int) -> str:
    """Return a figure and its standard error, if it has one."""
    return f"{value:.{places}f}" + (f" ±{error:.{places}f}" if error is not None else "")


def interval(value: float | None, low: float | None, high: float | None, scale: float, places: int, sign: str = "") -> str:
    """Return a figure and its interval; with `sign` "+", the sign is also printed if it is positive."""
    if value is None or low is None or high is None:
        return "-"
    texts = [f"{scale * figure:{sign}.{places}f}" for figure in (value, low, high)]
    return f"{texts[0]} [{texts[1]}, {texts[2]}]"


def chance(p: float | None) -> str:
    """Return a p-value as text. Values below 0.001 become `<0.001`, never 0."""
    return "<0.001" if p is not None and p < 0.001 else number(p, 3)


def check_plot(option: str = "--plot", path: Path | None = None) -> None:
    """Raise ValueError if no plot can be written to `path`: plots need matplotlib. Call this before a measurement."""
    require(option, "notebook")
    if path is None:
        return
    from matplotlib.backend_bases import FigureCanvasBase

    kinds = sorted(FigureCanvasBase.get_supported_filetypes())
    if path.suffix.removeprefix(".").lower() not in kinds:
        raise ValueError(f"{option} {short(str(path))} has no supported image format: end it with one of .{', .'.join(kinds)}")
    if not path.parent.is_dir():
        raise ValueError(f"{option} {short(str(path))} is in a folder that does not exist")
