"""How long a CUDA device works while something runs, whatever the host does meanwhile."""

from collections.abc import Callable, Iterable

import torch
from torch.profiler import ProfilerActivity, profile


def busy_us(run: Callable[[], None]) -> float | None:
    """Microseconds in which some kernel or copy of `run` runs; None if the profiler sees none."""
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        run()
        torch.cuda.synchronize()
    ranges = [event.time_range for event in profiler.events() or () if event.device_type.name == "CUDA"]
    return covered((each.start, each.end) for each in ranges) if ranges else None


def covered(ranges: Iterable[tuple[float, float]]) -> float:
    """The length of the union of ranges."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(ranges):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total
