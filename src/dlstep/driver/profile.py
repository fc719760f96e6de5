"""Name the parts of a decode in traces of torch's profiler."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch
from torch.profiler import record_function

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
