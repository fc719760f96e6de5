"""Time limits for forward passes: a pass that exceeds its limit is assumed to hang in user code or on the device."""

import faulthandler
from collections.abc import Generator
from contextlib import contextmanager
from time import perf_counter

WARM = 60.0  # after the first pass, the limit is at least so many seconds, unless `engine_timeout` is lower
SHARE = 6  # after the first pass, the limit is at least `engine_timeout` / SHARE
SLOWEST = 10  # after the first pass, the limit is at least so many times the slowest pass, up to `engine_timeout`
STDERR = 2  # the file descriptor, because `sys.stderr` may be an object without one


@contextmanager
def process_limit(seconds: float) -> Generator[None]:
    """Limit the time of the body: beyond it, print the stacks of all threads and end the process.

    This works even while a library holds the GIL. A process can have one such limit at a time.
    """
    faulthandler.dump_traceback_later(seconds, exit=True, file=STDERR)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


class StepLimit:
    """The time limit of a forward pass: `engine_timeout` for the first, which may compile, and usually less for later ones.

    Args:
        engine_timeout: Maximum limit in seconds.
    """

    def __init__(self, engine_timeout: float) -> None:
        self._timeout, self._slowest = engine_timeout, 0.0

    @property
    def seconds(self) -> float:
        """The limit for the next forward pass."""
        if not self._slowest:
            return self._timeout
        return min(self._timeout, max(WARM, self._timeout / SHARE, SLOWEST * self._slowest))

    def note(self, seconds: float) -> None:
        """Record the duration of a forward pass."""
        self._slowest = max(self._slowest, seconds)

    @contextmanager
    def enforced(self) -> Generator[None]:
        """Apply `process_limit` to the body, a forward pass, and record its duration."""
        begin = perf_counter()
        with process_limit(self.seconds):
            yield
        self.note(perf_counter() - begin)
