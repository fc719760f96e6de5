"""The loop of a batch: send requests to a pool, and store answers as they arrive."""

from collections import deque
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from .checkpoint import BatchCheckpoint
from .engine import BatchEngine
from .lines import RequestLine

if TYPE_CHECKING:
    from .ray_pool import RayPool  # needs ray

Show = Callable[[int, str], None]  # number of answers so far, status text


def no_show(done: int, status: str) -> None:
    """Show nothing."""


def answer_all(pool: "BatchEngine | RayPool", lines: list[RequestLine], out: Path, show: Show = no_show) -> int:
    """Answer all requests without an answer, and write `out`. Return the number of errors.

    If the process is killed, call this again: it resumes and writes a byte-identical `out`. Raises
    ValueError if files of another batch exist there, and DlstepError if the pool cannot continue.
    """
    checkpoint = BatchCheckpoint(out, lines, pool.about)
    with closing(checkpoint):
        places = deque(checkpoint.missing)
        while places or pool.live:
            while places and pool.live < 2 * pool.about.seats:  # queue as many as run, so the engine never idles
                place = places.popleft()
                pool.add(place, checkpoint.keys[place], lines[place].content)
            answers = pool.step()
            for answered in answers:
                checkpoint.note(answered)
            if answers:
                show(checkpoint.done, f"{checkpoint.failed} errors" if checkpoint.failed else "")
        checkpoint.finish()
        return checkpoint.failed
