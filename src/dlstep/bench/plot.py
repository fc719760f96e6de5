"""Pictures of measurements; needs matplotlib."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from itertools import cycle
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..evaluate.tuning import Tuned
    from .compare import Point


def check_plot() -> None:
    """Raise ValueError if there is nothing to draw with: better before measuring than after."""
    if find_spec("matplotlib") is None:
        raise ValueError("--plot needs matplotlib: pip install 'dlstep[notebook]'")


def plot_decode(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Step time over batch beside the least time, and the tokens in a second; a line for each context."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.5), layout="constrained")
    times, speed = figure.subplots(1, 2)
    for color, context in enumerate(dict.fromkeys(row["context"] for row in rows)):
        line = [row for row in rows if row["context"] == context]
        batches, style = [row["batch"] for row in line], {"color": f"C{color}"}
        times.plot(batches, [row["step_us"] / 1e3 for row in line], "o-", label=f"step, context {context}", **style)
        times.plot(batches, [row["roofline_us"] / 1e3 for row in line], "s--", label="least", **style)
        speed.plot(batches, [row["tokens_per_s"] for row in line], "o-", **style)
    times.set(xlabel="requests", ylabel="milliseconds", xscale="log", yscale="log", title=rows[0]["shape"])
    times.legend()
    speed.set(xlabel="requests", ylabel="tokens a second", xscale="log", yscale="log")
    batches = sorted({row["batch"] for row in rows})
    for axes in (times, speed):
        axes.set_xticks(batches, [str(batch) for batch in batches])
        axes.minorticks_off()
    figure.savefig(path, dpi=150)


COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")  # of strategies; told apart by any eye
OTHERS = "#d0d0d0"


def points_figure(points: "Sequence[Point]") -> "Figure":
    """Right answers against tokens per forward: a frame for each rule, a line for each strategy, those of other rules in grey.

    The first value of the rule's option is the hollow end of a line.
    """
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter

    rules, strategies = (list(dict.fromkeys(map(attrgetter(name), points))) for name in ("rule", "strategy"))
    colours = dict(zip(sorted(strategies), cycle(COLOURS)))
    columns = min(4, len(rules))
    count = -(-len(rules) // columns)
    figure = Figure(figsize=(2.6 * columns + 0.6, 2.2 * count + 0.8), layout="constrained")
    frames = figure.subplots(count, columns, sharex=True, sharey=True, squeeze=False).flat
    first = {point.rule: point for point in reversed(points)}
    lines = list(dict.fromkeys((point.rule, point.strategy) for point in points))
    for rule, axes in zip(rules, frames, strict=False):  # in this order, so that no frame is lost
        for other, strategy in lines:
            if other != rule:
                _, speed, right = _line(points, other, strategy)
                axes.plot(speed, right, color=OTHERS, linewidth=0.8, zorder=1)
        for strategy in [strategy for own, strategy in lines if own == rule]:
            _draw(axes, _line(points, rule, strategy), colours[strategy])
        values, name = _line(points, rule, first[rule].strategy)[0], first[rule].option
        option = f"{name.replace('_', ' ')} {', '.join(map(str, values))}" if name else ""
        axes.set_title(f"{Path(rule).stem}\n", fontsize=10, fontweight="bold")
        axes.text(0.5, 1.03, option, fontsize=7, ha="center", transform=axes.transAxes)
        axes.grid(alpha=0.3)
        axes.set_xscale("log", base=2)
        axes.xaxis.set(
            major_locator=FixedLocator([1, 2, 4, 8, 16, 32, 64]), major_formatter=ScalarFormatter(), minor_locator=NullLocator()
        )
        axes.tick_params(labelsize=8, labelbottom=True)
    for axes in list(frames):
        axes.set_visible(False)
    models = {point.strategy: point.model for point in points}
    handles = [Line2D([], [], color=colours[name], marker="o", label=f"{name}, {models[name]}") for name in strategies]
    grey = [Line2D([], [], color=OTHERS, label="the other rules")] if len(rules) > 1 else []
    hollow = Line2D([], [], linestyle="", marker="o", color="#555", markerfacecolor="white", label="first value")
    figure.legend(
        handles=[*handles, hollow, *grey], loc="outside upper center", ncols=len(handles) + 2, fontsize=9, frameon=False
    )
    figure.supxlabel("tokens per forward", fontsize=10)
    figure.supylabel("right answers, %", fontsize=10)
    return figure


def _line(points: "Sequence[Point]", rule: str, strategy: str) -> tuple[list[Any], list[float], list[float]]:
    """Values of a rule's option on a strategy, in their order, with the speed and the accuracy at each."""
    own = [point for point in points if (point.rule, point.strategy) == (rule, strategy)]
    return [point.value for point in own], [point.tokens_per_forward for point in own], [100 * point.right for point in own]


def _draw(axes: Any, line: tuple[list[Any], list[float], list[float]], colour: str) -> None:
    """A line whose first point is hollow."""
    _, speed, right = line
    axes.plot(speed, right, color=colour, marker="o", markersize=4, linewidth=1.5, zorder=3)
    axes.plot(speed[:1], right[:1], color=colour, marker="o", markersize=4, markerfacecolor="white", zorder=4)


def plot_points(points: "Sequence[Point]", path: Path) -> None:
    """Store the picture of `points_figure`."""
    points_figure(points).savefig(path, dpi=80, pil_kwargs={"optimize": True})


def frontier_figure(tuned: "Tuned") -> "Figure":
    """Every set of options that was tried, the frontier on the problems of the search, and the same sets on held-out ones."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.subplots()
    tried = sorted(tuned.tried, key=attrgetter("sums.count"))
    axes.scatter([point.speed for point in tried], [100 * point.accuracy for point in tried], 14, OTHERS, label="tried")
    axes.plot(
        [point.speed for point in tuned.line], [100 * point.accuracy for point in tuned.line],
        "o--", color=COLOURS[0], markersize=4, linewidth=1, label="frontier of the search",
    )  # fmt: skip
    axes.errorbar(
        [point.speed for point in tuned.held],
        [100 * point.accuracy for point in tuned.held],
        yerr=[100 * point.sums.accuracy_error for point in tuned.held],
        xerr=[point.sums.tokens_per_forward_error for point in tuned.held],
        fmt="s-", color=COLOURS[1], markersize=4, linewidth=1.5, capsize=2, label="the same on held-out problems",
    )  # fmt: skip
    chosen = tuned.chosen_held
    axes.scatter([chosen.speed], [100 * chosen.accuracy], 160, facecolors="none", edgecolors="black", label="chosen", zorder=4)
    axes.set(xlabel="tokens per forward", ylabel="right answers, %")
    axes.set_title(" ".join(f"{name}={value}" for name, value in tuned.chosen.options), fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, frameon=False, loc="lower left")
    return figure


def plot_frontier(tuned: "Tuned", path: Path) -> None:
    """Store the picture of `frontier_figure`."""
    frontier_figure(tuned).savefig(path, dpi=120)
