"""Waiting for what other threads and processes do."""

import time
from collections.abc import Callable


def until(holds: Callable[[], object], seconds: float, told: Callable[[], object] = lambda: "") -> None:
    """Wait until a condition holds; after too long, fail with what is told then."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, told()
        time.sleep(0.02)
