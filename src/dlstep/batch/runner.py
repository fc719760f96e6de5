"""The loop of a batch: send requests to a crew, and store answers as they arrive."""

from collections import deque
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from .checkpoint import Checkpoint
from .crews import Crew
from .lines import Line

Show = Callable[[int, str], None]  # number of answers so far, status text


def no_show(done: int, said: str) -> None:
    """Show nothing."""


def answer_all(crew: Crew, lines: list[Line], out: Path, show: Show = no_show) -> int:
    """Answer all requests without an answer, and write `out`. Return the number of errors.

    If the process is killed, call this again: it resumes and writes a byte-identical `out`. Raises
    ValueError if files of another batch exist there, and DlstepError if the crew cannot continue.
    """
    checkpoint = Checkpoint(out, lines, crew.about)
    with closing(checkpoint):
        places = deque(checkpoint.missing)
        while places or crew.live:
            while places and crew.live < 2 * crew.about.seats:  # queue as many as run, so the engine never idles
                place = places.popleft()
                crew.add(place, checkpoint.keys[place], lines[place].content)
            answers = crew.step()
            for answered in answers:
                checkpoint.note(answered)
            if answers:
                show(checkpoint.done, f"{checkpoint.failed} errors" if checkpoint.failed else "")
        checkpoint.finish()
        return checkpoint.failed
