"""Where the time of a decode goes: regions with names, in traces of torch's profiler."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import torch
from torch.profiler import ProfilerActivity, profile, record_function

REGION = "dlstep "  # names begin with it
P = ParamSpec("P")
R = TypeVar("R")


def region(name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Calls of a function have this name in a profile, behind `REGION`; where none is taken, that costs a look."""

    def named(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*given: P.args, **others: P.kwargs) -> R:
            if not torch.autograd._profiler_enabled():  # pyright: ignore[reportPrivateImportUsage]
                return function(*given, **others)
            with record_function(REGION + name):
                return function(*given, **others)

        return call

    return named


def check_trace(path: str | Path | None) -> None:
    """Raise ValueError if no trace can be written there: better before a long decode than behind it."""
    if path is not None and not Path(path).resolve().parent.is_dir():
        raise ValueError(f"--profile: there is no folder {Path(path).resolve().parent} to write {Path(path).name} into")


@contextmanager
def profiled(path: str | Path | None) -> Iterator[Any]:
    """A profile of what is run meanwhile, of the host and of a CUDA device; written as a trace to `path` unless that is None.

    Traces are JSON that chrome://tracing and Perfetto show.
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
