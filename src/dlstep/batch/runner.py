"""The loop of a batch: requests go to a crew as long as it has room, answers to the checkpoint as they come."""

from collections import deque
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from .checkpoint import Checkpoint
from .crews import Crew
from .lines import Line

Show = Callable[[int, str], None]  # answers so far, some words


def no_show(done: int, said: str) -> None:
    """Show nothing."""


def answer_all(crew: Crew, lines: list[Line], out: Path, show: Show = no_show) -> int:
    """Answer every request that `out` does not answer yet, and write it; returns how many answers are errors.

    Killed at any moment and called again, `out` is that of an unbroken run, byte for byte. Raises ValueError where files of
    another batch are in the way, and DlstepError when the crew cannot go on.
    """
    checkpoint = Checkpoint(out, lines, crew.about)
    with closing(checkpoint):
        places = deque(checkpoint.missing)
        while places or crew.live:
            while places and crew.live < 2 * crew.about.seats:  # as many requests wait as run
                place = places.popleft()
                crew.add(place, checkpoint.keys[place], lines[place].content)
            answers = crew.step()
            for answered in answers:
                checkpoint.note(answered)
            if answers:
                show(checkpoint.done, f"{checkpoint.failed} errors" if checkpoint.failed else "")
        checkpoint.finish()
        return checkpoint.failed
