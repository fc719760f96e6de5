"""Plots of measurements; need matplotlib."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


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
