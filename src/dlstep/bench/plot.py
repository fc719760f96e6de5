"""Pictures of measurements; needs matplotlib."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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


def plot_points(points: "Sequence[Point]", path: Path) -> None:
    """Right answers against tokens per forward: a picture for each strategy, a line for each rule, its name at the end."""
    from matplotlib.figure import Figure

    strategies = list(dict.fromkeys(point.strategy for point in points))
    figure = Figure(figsize=(6.5 * len(strategies), 5), layout="constrained")
    for axes, strategy in zip(figure.subplots(1, len(strategies), squeeze=False)[0], strategies, strict=True):
        own = [point for point in points if point.strategy == strategy]
        for number, rule in enumerate(dict.fromkeys(point.rule for point in own)):
            line = sorted((point.tokens_per_forward, 100 * point.right) for point in own if point.rule == rule)
            style = {"color": f"C{number % 10}", "linestyle": ("-", "--", ":")[number // 10 % 3]}
            axes.plot(*zip(*line, strict=True), marker="o", markersize=3, label=Path(rule).stem, **style)
            axes.annotate(
                Path(rule).stem, line[-1], xytext=(4, 0), textcoords="offset points", fontsize=8, color=style["color"]
            )
        axes.set(xlabel="tokens per forward", ylabel="right answers, %", title=f"{strategy}, {own[0].model}")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7, loc="lower left")
    figure.savefig(path, dpi=130)
