"""The loop of a run: send requests to a pool of engines, and store answers as they arrive."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

from ..engine.step_limit import StepLimit
from .checkpoint import BatchCheckpoint
from .lines import RequestLine

Show = Callable[[int, str], None]  # number of answers so far, status text


def no_show(done: int, status: str) -> None:
    """Show nothing."""


def answered(
    pool: Any, requests: Iterable[tuple[Any, ...]], seats: int, limit: StepLimit | None = None
) -> Generator[Sequence[Any]]:
    """Yield the answers of each step of a pool: `add` queues a request, and `live` is the number of unanswered ones.

    Twice as many requests are queued as can run, so that the engine never idles. A step that exceeds `limit` ends the process.
    """
    waiting = deque(requests)
    while waiting or pool.live:
        with nullcontext() if limit is None else limit.enforced():
            while waiting and pool.live < 2 * seats:
                pool.add(*waiting.popleft())
            answers = pool.step()
        yield answers


def answer_all(pool: Any, lines: list[RequestLine], out: Path, show: Show = no_show) -> int:
    """Answer all requests without an answer with a `BatchEngine` or a `RayPool`, and write `out`. Return the number of errors.

    If the process is killed, call this again: it resumes and writes a byte-identical `out`. Raises
    ValueError if files of another batch exist there, and DlstepError if the pool cannot continue.
    """
    with closing(BatchCheckpoint(out, lines, pool.facts)) as checkpoint:
        requests = [(place, checkpoint.keys[place], lines[place].content) for place in checkpoint.missing]
        with closing(pool.answers(requests)) as steps:
            for answers in steps:
                for answer in answers:
                    checkpoint.note(answer)
                if answers:
                    show(checkpoint.done, f"{checkpoint.failed} errors" if checkpoint.failed else "")
        checkpoint.finish()
        return checkpoint.failed
