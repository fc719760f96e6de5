"""A plot of the curve; needs matplotlib."""

from collections.abc import Sequence
from pathlib import Path

from .figures import Figures


def plot_curve(rows: Sequence[Figures], path: Path) -> None:
    """Plot throughput, latency and shares over the number of replicas."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.4), layout="constrained")
    speed, times, shares = figure.subplots(1, 3)
    counts = [row.replicas for row in rows]
    speed.plot(counts, [row.tokens_per_s for row in rows], "o-", color="C0")
    speed.set(ylabel="tokens a second", yscale="log")
    for name, style in (("latency_p50", "o-"), ("latency_p95", "s-"), ("latency_p99", "^-")):
        times.plot(counts, [getattr(row, name) for row in rows], style, label=name[-3:])
    times.set(ylabel="milliseconds to the whole answer", yscale="log")
    times.legend()
    shares.plot(counts, [row.hit_rate for row in rows], "o-", label="prompt tokens found in pages")
    shares.plot(counts, [row.busy for row in rows], "s-", label="time in forward passes")
    shares.set(ylim=(0, 1))
    shares.legend()
    for axes in (speed, times, shares):
        axes.set(xlabel="replicas", xscale="log")
    figure.savefig(path, dpi=120)
