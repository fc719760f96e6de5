"""Plots of comparisons: accuracy against tokens per forward pass, with errors; needs matplotlib."""

from collections.abc import Sequence
from io import StringIO
from itertools import chain, cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..text.words import clipped, counted, printable
from ..views.figures import COLOURS, OTHERS
from .comparing import ComparisonRow, Curve, curves_of, value_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARKERS = "osD^vP"
FAINT = "#d0d0d0"
MOST_NAMED = 8  # up to so many curves each have a colour, also without a point on the frontier
TICKS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
FRONTIER = 0.25  # opacity of its line
LABEL = 52  # maximum number of characters


def tasks_figure(rows: Sequence[ComparisonRow]) -> "Figure":
    """Return a figure with a frame per task: a line per entry, and the frontier of all.

    If there are many entries, only those with a point on a frontier have a colour.
    """
    tasks = curves_of(rows)
    ahead: dict[str, bool] = {}  # whether an entry has a point on a frontier, by label
    for curve in chain.from_iterable(tasks.values()):
        ahead[curve.label] = ahead.get(curve.label, False) or any(row.on_frontier for row in curve.rows)
    named = [label for label in ahead if ahead[label] or len(ahead) <= MOST_NAMED]
    styles = dict(zip(named, zip(cycle(COLOURS), cycle(MARKERS)), strict=False))
    figure, frames = _frames(rows, len(tasks), 2, (6.4, 4.2) if len(tasks) == 1 else (5.2, 4.2))
    ink = frames[0].xaxis.label.get_color()
    for axes, (task, curves) in zip(frames, tasks.items(), strict=True):
        for curve in sorted(curves, key=lambda curve: curve.label in styles):
            _draw(axes, curve, styles.get(curve.label))
        best = sorted((row for curve in curves for row in curve.rows if row.on_frontier), key=_place)
        ends = zip(*map(_place, best), strict=True)
        axes.plot(*ends, drawstyle="steps-pre", color=ink, linewidth=3, alpha=FRONTIER, zorder=1)
        axes.set_title(f"{task}, {counted(curves[0].rows[0].problems, 'problem')}", fontsize=10)
    _legend(figure, styles, {"color": ink, "linewidth": 3, "alpha": FRONTIER, "label": "frontier"}, len(styles) < len(ahead))
    return figure


def rules_figure(rows: Sequence[ComparisonRow]) -> "Figure":
    """Return a figure with a frame per task and rule: a line per strategy, other rules in grey.

    The hollow end of a line is the first value of the rule's option. Each strategy without rules
    has a separate frame.
    """
    tasks = curves_of(rows)
    names = [(task, name) for task, curves in tasks.items() for name in dict.fromkeys(map(_frame, curves))]
    models = {row.strategy: row.model for row in rows}
    styles = {strategy: (colour, "o") for strategy, colour in zip(models, cycle(COLOURS), strict=False)}
    figure, frames = _frames(rows, len(names), 4, (2.6, 2.2), share=True)
    for axes, (task, name) in zip(frames, names, strict=True):
        own = [curve for curve in tasks[task] if _frame(curve) == name]
        for curve in tasks[task]:
            if curve not in own:
                axes.plot(*zip(*map(_place, curve.rows), strict=True), color=FAINT, linewidth=0.8, zorder=1)
        for curve in own:
            _draw(axes, curve, styles[curve.rows[0].strategy], hollow=True)
        title = Path(name).stem if len(tasks) == 1 else f"{task}, {Path(name).stem}"
        axes.set_title(f"{_plain(title)}\n", fontsize=10, fontweight="bold")
        option, values = " ".join(own[0].rows[0].options).replace("_", " "), ", ".join(map(value_of, own[0].rows))
        axes.text(0.5, 1.03, _plain(f"{option} {values}".strip()), fontsize=7, ha="center", transform=axes.transAxes)
        axes.tick_params(labelsize=8, labelbottom=True)
    first = {"linestyle": "", "marker": "o", "color": OTHERS, "markerfacecolor": "none", "label": "first value"}
    _legend(figure, {f"{name}, {models[name]}": style for name, style in styles.items()}, first, len(names) > 1)
    return figure


def _frames(
    rows: Sequence[ComparisonRow], count: int, most: int, size: tuple[float, float], *, share: bool = False
) -> tuple["Figure", list[Any]]:
    """Return a figure with `count` frames of `size` inches, at most `most` in a line.

    With `share`, the frames have the same axes, and room is left for titles. The axis of tokens per
    forward pass is logarithmic if all values are positive.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter

    columns = min(most, count)
    lines = -(-count // columns)
    room = (0.6, 0.8) if share else (0.0, 0.0)
    figure = Figure(figsize=(size[0] * columns + room[0], size[1] * lines + room[1]), layout="constrained")
    frames = list(figure.subplots(lines, columns, sharex=share, sharey=share, squeeze=False).flat)
    for axes in frames[:count]:
        axes.grid(alpha=0.25)
        if all(row.tokens_per_forward > 0 for row in rows):
            axes.set_xscale("log", base=2)
            axes.xaxis.set(major_locator=FixedLocator(TICKS), major_formatter=ScalarFormatter(), minor_locator=NullLocator())
    for axes in frames[count:]:
        axes.set_visible(False)
    figure.supxlabel("tokens per forward pass", fontsize=10)
    figure.supylabel("right answers, %", fontsize=10)
    return figure, frames[:count]


def _frame(curve: Curve) -> str:
    """Return the name of the frame of a curve."""
    return curve.rows[0].rule or curve.rows[0].strategy


def _draw(axes: Any, curve: Curve, style: tuple[str, str] | None, *, hollow: bool = False) -> None:
    """Draw a line with errors, grey without a `style`, with a `hollow` first point if requested."""
    speed, right = zip(*map(_place, curve.rows), strict=True)
    bounds = [row.accuracy_low for row in curve.rows], [row.accuracy_high for row in curve.rows]
    errors = {
        "xerr": [row.tokens_per_forward_error or 0.0 for row in curve.rows],
        "yerr": [[100 * abs(row.accuracy - end) for row, end in zip(curve.rows, ends, strict=True)] for ends in bounds],
    }
    colour, marker = style or (OTHERS, "o")
    order, size = (3, 4) if style else (2, 2)
    alpha = 1.0 if style else 0.5
    line = {"marker": marker, "markersize": size, "linewidth": 1.5 if style else 0.7, "elinewidth": 0.6, "alpha": alpha}
    axes.errorbar(speed, right, **errors, color=colour, zorder=order, **line)
    if hollow:
        face = axes.get_facecolor()
        axes.plot(speed[:1], right[:1], color=colour, marker=marker, markersize=size, markerfacecolor=face, zorder=4)


def _place(row: ComparisonRow) -> tuple[float, float]:
    """Return the coordinates of a row in a plot."""
    return row.tokens_per_forward, 100 * row.accuracy


def _plain(text: str) -> str:
    """Return a text with `$` escaped, which would begin a formula."""
    return clipped(printable(text), LABEL).replace("$", r"\$")


def _legend(figure: "Figure", styles: dict[str, tuple[str, str]], special: dict[str, Any], others: bool) -> None:
    """Draw the names of the lines above the frames, then what a special line or marker means."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=colour, marker=mark, markersize=4, label=_plain(name)) for name, (colour, mark) in styles.items()
    ]
    handles.append(Line2D([], [], **special))
    if others:
        handles.append(Line2D([], [], color=OTHERS, label="others"))
    figure.legend(handles=handles, loc="outside upper center", ncols=3, fontsize=8, frameon=False)


def save(figure: "Figure", path: Path) -> None:
    """Store a figure in the format of the file's suffix."""
    figure.savefig(path, dpi=110, pil_kwargs={"optimize": True} if path.suffix == ".png" else None)


def svg(rows: Sequence[ComparisonRow], *, dark: bool) -> str:
    """Return the frontiers as SVG for a light or a dark page."""
    import matplotlib as mpl
    from matplotlib.style import library

    theme = dict(library["dark_background"]) if dark else {}
    theme |= {"figure.facecolor": "#111111", "axes.facecolor": "#111111", "savefig.facecolor": "#111111"} if dark else {}
    with mpl.rc_context({**theme, "svg.hashsalt": "dlstep"}):
        text = StringIO()
        tasks_figure(rows).savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return text.getvalue()
