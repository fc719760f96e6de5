"""Plots of comparisons: accuracy against tokens per forward pass, with errors; needs matplotlib."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core import short
from ..extras import require
from ..text.words import clipped, counted, printable
from .comparing import ComparisonRow, curves_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Distinguishable with any colour vision.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d31", "#7f7f7f")
OTHERS = "#a0a0a0"
MARKERS = "osD^vP"
MOST_NAMED = 8  # up to so many curves each have a colour, also without a point on the frontier
TICKS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
LABEL = 52  # maximum number of characters


def tasks_figure(rows: Sequence[ComparisonRow]) -> "Figure":
    """Return a figure with a frame per task, at most 4 in a line: a line per entry, and the frontier of all.

    If there are many entries, those without a point on a frontier are grey. The axis of tokens per
    forward pass is logarithmic if all values are positive.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter

    labels = dict.fromkeys(row.entry for row in rows)
    ahead = {row.entry for row in rows if row.on_frontier}
    named = [label for label in labels if label in ahead or len(labels) <= MOST_NAMED]
    styles = dict(zip(named, zip(cycle(COLOURS), cycle(MARKERS)), strict=False))
    tasks = curves_of(rows)
    columns = min(4, len(tasks))
    lines = -(-len(tasks) // columns)
    size = (6.4, 4.2) if len(tasks) == 1 else (3.2, 3.0)
    figure = Figure(figsize=(size[0] * columns, size[1] * lines + 0.6), layout="constrained")
    figure.supxlabel("tokens per forward pass", fontsize=10)
    figure.supylabel("right answers, %", fontsize=10)
    frames = list(figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).flat)
    handles: dict[str, Any] = {}
    for axes, (task, curves) in zip(frames, tasks.items(), strict=False):
        axes.set_title(f"{task}, {counted(next(iter(curves.values()))[0].answers, 'problem')}", fontsize=10)
        axes.grid(alpha=0.25)
        axes.tick_params(labelsize=8, labelbottom=True)
        if all(row.tokens_per_forward > 0 for row in rows):
            axes.set_xscale("log", base=2)
            axes.xaxis.set(major_locator=FixedLocator(TICKS), major_formatter=ScalarFormatter(), minor_locator=NullLocator())
        draw(axes, curves, styles)
        handles |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    for axes in frames[len(tasks) :]:
        axes.set_visible(False)
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=3, fontsize=8, frameon=False)
    return figure


def draw(axes: Any, curves: Mapping[str, Sequence[ComparisonRow]], styles: Mapping[str, tuple[str, str]]) -> None:
    """Draw a line with errors for each curve, in grey without a style, and the frontier."""
    for label, rows in sorted(curves.items(), key=lambda curve: curve[0] in styles):
        colour, marker = styles.get(label, (OTHERS, "o"))
        size, alpha = (4, 1.0) if label in styles else (2, 0.5)
        text = clipped(printable(label), LABEL).replace("$", r"\$")  # a `$` would begin a formula
        speed, right = zip(*map(place, rows), strict=True)
        below = [100 * abs(row.accuracy - row.accuracy_low) for row in rows]
        above = [100 * abs(row.accuracy_high - row.accuracy) for row in rows]
        axes.errorbar(
            speed, right, xerr=[row.tokens_per_forward_error or 0.0 for row in rows], yerr=[below, above], color=colour,
            marker=marker, markersize=size, alpha=alpha, linewidth=1, elinewidth=0.6, zorder=size,
            label=text if label in styles else "others",
        )  # fmt: skip
    best = sorted(place(row) for own in curves.values() for row in own if row.on_frontier)
    steps = {"drawstyle": "steps-pre", "color": "black", "linewidth": 3, "alpha": 0.25, "zorder": 1}
    axes.plot(*zip(*best, strict=True), label="frontier", **steps)


def place(row: ComparisonRow) -> tuple[float, float]:
    """Return the coordinates of a row in a plot."""
    return row.tokens_per_forward, 100 * row.accuracy


def check_plot(path: Path) -> None:
    """Raise ValueError if `--plot` cannot write to `path`: plots need matplotlib. Call this before a measurement."""
    require("--plot", "notebook")
    from matplotlib.figure import Figure

    try:
        Figure().savefig(path)
    except (OSError, ValueError) as error:
        raise ValueError(f"--plot {short(str(path))} cannot be written: {error}") from error
