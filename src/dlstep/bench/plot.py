"""Plots of measurements; need matplotlib."""

from collections.abc import Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..views.plots import COLOURS, OTHERS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..evaluate.tuning import TuningResult


def plot_decode(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Plot step time and roofline over batch, and tokens per second; one line for each context."""
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


def frontier_figure(tuned: "TuningResult") -> "Figure":
    """Return a plot of all tried sets, the frontier of the search, and the same sets on held-out problems."""
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
        yerr=[
            [100 * abs(point.accuracy - point.sums.accuracy_interval[end]) for point in tuned.held] for end in (0, 1)
        ],
        xerr=[point.sums.tokens_per_forward_error for point in tuned.held],
        fmt="s-", color=COLOURS[1], markersize=4, linewidth=1.5, capsize=2, label="the same on held-out problems",
    )  # fmt: skip
    chosen = tuned.chosen_held
    axes.scatter([chosen.speed], [100 * chosen.accuracy], 160, facecolors="none", edgecolors="black", label="chosen", zorder=4)
    axes.set(xlabel="tokens per forward pass", ylabel="right answers, %")
    axes.set_title(" ".join(f"{name}={value}" for name, value in tuned.chosen.options), fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, frameon=False, loc="lower left")
    return figure


def plot_frontier(tuned: "TuningResult", path: Path) -> None:
    """Save the plot of `frontier_figure`."""
    frontier_figure(tuned).savefig(path, dpi=120)
