"""Name the parts of a decode in traces of torch's profiler."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import torch
from torch.profiler import ProfilerActivity, profile, record_function

REGION = "dlstep "  # prefix of all region names
P = ParamSpec("P")
R = TypeVar("R")


def region(name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Name the function's calls in profiles, after `REGION`. Nearly free when not profiling."""

    def named(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            if not torch.autograd._profiler_enabled():  # pyright: ignore[reportPrivateImportUsage]
                return function(*args, **kwargs)
            with record_function(REGION + name):
                return function(*args, **kwargs)

        return call

    return named


def check_trace(path: str | Path | None) -> None:
    """Raise ValueError if no trace can be written to `path`. Call it before a long decode."""
    if path is not None and not Path(path).resolve().parent.is_dir():
        raise ValueError(f"--profile: the folder {Path(path).resolve().parent} for {Path(path).name} does not exist")


@contextmanager
def profiled(path: str | Path | None) -> Iterator[Any]:
    """Profile the block on host and CUDA device, and write a trace to `path` unless it is None.

    Traces are JSON for chrome://tracing and Perfetto.
    """
    check_trace(path)
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
