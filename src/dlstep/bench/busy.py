"""How long a CUDA device works during a step, and on what kinds of kernels."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from ..driver.profile import REGION, profiled

# Parts of kernel names by kind; the first kind with a match counts.
KINDS = {
    "experts": ("_multiply_gated", "_multiply_down", "_add_choices", "_pairs", "_choose_best", "_multiply_part"),
    "attention": ("_attend", "_join", "_store_rows"),
    "head": ("_read_head", "_answer_rows", "_read_rows", "_read_named", "_measure_named"),
    "products": ("nvjet", "gemm", "cutlass", "splitK"),
}


@dataclass(frozen=True, slots=True)
class DeviceBusyTime:
    """Microseconds in which any kernel or copy runs, those of each kind of kernel, and launches."""

    us: float
    kinds: dict[str, float]
    launches: int


def busy(step: Callable[[], object], count: int, trace: Path | None = None) -> DeviceBusyTime | None:
    """Return the device's mean work per call of `step` over `count` calls; None if the profiler sees no work of a device.

    The profile is written to `trace`, if given.
    """
    with profiled(trace) as profiler:
        for _ in range(count):
            step()
    # Named regions also appear on the device.
    events = [e for e in profiler.events() or () if e.device_type.name == "CUDA" and not e.name.startswith(REGION)]
    if not events:
        return None
    kinds = dict.fromkeys((*KINDS, "others"), 0.0)
    for event in events:
        kinds[kind_of(event.name)] += event.time_range.elapsed_us() / count
    ranges = ((event.time_range.start, event.time_range.end) for event in events)
    return DeviceBusyTime(covered(ranges) / count, kinds, round(len(events) / count))


def kind_of(name: str) -> str:
    """Return the kind of a kernel by its name."""
    return next((kind for kind, parts in KINDS.items() if any(part in name for part in parts)), "others")


def covered(ranges: Iterable[tuple[float, float]]) -> float:
    """Return the length of the union of ranges."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(ranges):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total
