"""How long a CUDA device works while something runs, and on what, whatever the host does meanwhile."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from ..driver.profile import REGION, profiled

# Parts of kernels' names, by what the kernels do; a name counts where it is found first.
KINDS = {
    "experts": ("_multiply_gated", "_multiply_down", "_add_choices", "_pairs", "_choose_best", "_multiply_part"),
    "attention": ("_attend", "_join", "_store_rows"),
    "head": ("_read_head", "_answer_rows", "_read_rows", "_read_named", "_measure_named"),
    "products": ("nvjet", "gemm", "cutlass", "splitK"),
}


@dataclass(frozen=True, slots=True)
class Busy:
    """Microseconds in which some kernel or copy runs, those that kernels of each kind take, and how many are launched."""

    us: float
    kinds: dict[str, float]
    launches: int


def busy(run: Callable[[], None], trace: Path | None = None) -> Busy | None:
    """Work of a device during `run`; None if the profiler sees nothing. The profile is written to `trace`."""
    with profiled(trace) as profiler:
        run()
    # Regions with names are shown on the device, too.
    events = [e for e in profiler.events() or () if e.device_type.name == "CUDA" and not e.name.startswith(REGION)]
    if not events:
        return None
    kinds = dict.fromkeys((*KINDS, "others"), 0.0)
    for event in events:
        kinds[kind_of(event.name)] += event.time_range.elapsed_us()
    ranges = ((event.time_range.start, event.time_range.end) for event in events)
    return Busy(covered(ranges), kinds, len(events))


def kind_of(name: str) -> str:
    """The kind of a kernel of this name, as far as `KINDS` knows."""
    return next((kind for kind, parts in KINDS.items() if any(part in name for part in parts)), "others")


def covered(ranges: Iterable[tuple[float, float]]) -> float:
    """The length of the union of ranges."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(ranges):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total
