"""How long a forward pass may take until user code or the device is taken to hang."""

import faulthandler
from collections.abc import Generator
from contextlib import contextmanager
from time import perf_counter

WARM = 60.0  # minimum limit in seconds after the first pass
SHARE = 6  # after the first pass, the limit is this part of `engine_timeout` if that is more
SLOWEST = 10  # after the first pass, the limit is at least so many times the slowest pass
STDERR = 2  # the file descriptor: `sys.stderr` may be an object without one


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
        """Limit the time of the body, a forward pass: beyond it, print the stacks of all threads and end the process.

        This works even while a library holds the GIL.
        """
        begin = perf_counter()
        faulthandler.dump_traceback_later(self.seconds, exit=True, file=STDERR)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()
        self.note(perf_counter() - begin)
