"""What a device can do: bytes copied and matrix operations per second in plain torch, and how busy it is during a step."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from dlstep.driver.profile import REGION
from dlstep_kernels import has_kernels

MIB = 1 << 20
# Parts of kernel names by kind; the first kind with a match counts.
KINDS = {
    "experts": ("_multiply_gated", "_multiply_down", "_add_choices", "_pairs", "_choose_best", "_multiply_part"),
    "attention": ("_attend", "_join", "_store_rows"),
    "head": ("_read_head", "_answer_rows", "_read_rows", "_read_named", "_measure_named"),
    "products": ("nvjet", "gemm", "cutlass", "splitK"),
}


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Bytes read plus written per second by a large copy; operations per second of a large matrix product."""

    bytes_per_s: float
    flops_per_s: float

    def least_us(self, moved: float, flops: float) -> float:
        """Return the minimum microseconds for `moved` bytes and `flops` operations."""
        return 1e6 * max(moved / self.bytes_per_s, flops / self.flops_per_s)


def kernel_device() -> torch.device:
    """Return the CUDA device. Raises ValueError if there is none that runs kernels."""
    device = torch.device("cuda")
    if not torch.cuda.is_available() or not has_kernels(device):
        raise ValueError("there is no CUDA device with compute capability 8.0 or above, or no triton")
    return torch.device("cuda", torch.cuda.current_device())


def measure_ceilings(device: torch.device, dtype: torch.dtype) -> Ceilings:
    """Return the ceilings of `device` for `dtype`; on a CPU from small sizes."""
    there = device.type == "cuda"
    size, side = (1024 * MIB, 8192) if there else (64 * MIB, 1024)
    source = torch.empty(size // dtype.itemsize, dtype=dtype, device=device).normal_()
    target = torch.empty_like(source)
    # `copy_` may use a copy engine, which can be slower than a copying kernel.
    copied = min(timed_us([lambda: target.copy_(source)], device), timed_us([lambda: torch.neg(source, out=target)], device))
    left, right = (torch.empty((side, side), dtype=dtype, device=device).normal_() for _ in range(2))
    multiplied = timed_us([lambda: left @ right], device)
    return Ceilings(2e6 * size / copied, 2e6 * side**3 / multiplied)


def timed_us(calls: list[Callable[[], object]], device: torch.device, *, repetitions: int = 20, budget_s: float = 0.5) -> float:
    """Return the microseconds of a call, the median over repetitions.

    The calls do the same with different inputs in turn, so that no cache holds them. On a CUDA
    device, launches are captured in a graph, so only the device's work is timed.
    """
    for call in calls:
        call()
    if device.type != "cuda":
        return 1e6 * median(_clocked_s(call, budget_s) for call in calls)
    graph = _captured(calls)
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(repetitions)]
    graph.replay()
    for begin, end in events:
        begin.record()
        graph.replay()
        end.record()
    torch.cuda.synchronize(device)
    return 1e3 * median(begin.elapsed_time(end) for begin, end in events) / len(calls)


def _clocked_s(call: Callable[[], object], budget_s: float) -> float:
    """Return the minimum wall-clock seconds of a few calls."""
    least, spent, runs = float("inf"), 0.0, 0
    while runs < 3 or (spent < budget_s and runs < 10):
        start = perf_counter()
        call()
        elapsed = perf_counter() - start
        least, spent, runs = min(least, elapsed), spent + elapsed, runs + 1
    return least


def _captured(calls: list[Callable[[], object]]) -> torch.cuda.CUDAGraph:
    """Return a graph of all calls."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for call in calls:
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    return graph


@dataclass(frozen=True, slots=True)
class DeviceBusyTime:
    """Microseconds in which any kernel or copy runs, those of each kind of kernel, and launches."""

    us: float
    kinds: dict[str, float]
    launches: int


@contextmanager
def profiled(path: Path | None) -> Iterator[Any]:
    """Profile the block on host and CUDA device, and write a trace to `path` unless it is None.

    Traces are JSON for chrome://tracing and Perfetto.
    """
    activities = [ProfilerActivity.CPU] if path is not None else []
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities) as profiler:
        yield profiler
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    if path is not None:
        profiler.export_chrome_trace(str(path))


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
