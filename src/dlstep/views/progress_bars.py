"""Progress bars for batches of requests, loading and downloads."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from ..core import State
from ..text.words import WIDTH
from .frames import framed
from .terminal import answer_text

if TYPE_CHECKING:
    from tqdm.auto import tqdm

MOST_ANSWERS = 8  # with more requests, only their number is shown
LINES_OF_ANSWER = 8


@cache
def terminal() -> Console:
    """Return the console of stderr. On one console, a bar inside the block of another joins its live area."""
    return Console(stderr=True)


class Bar(Progress):
    """A bar on stderr, drawn only if stderr is a terminal that can move its cursor. It may show the answers of a state."""

    def __init__(
        self, text: str, total: int | None, *columns: ProgressColumn, enabled: bool = True, visible: bool = True
    ) -> None:
        self.state: State | None = None  # before the first rendering, which is in `__init__`
        console = terminal()
        drawn = enabled and not console.quiet and console.is_terminal and not console.is_dumb_terminal
        # Lines that are printed meanwhile go above the area. If stdout is not a terminal, it is not redirected.
        super().__init__(*columns, console=console, transient=True, disable=not drawn, redirect_stdout=sys.stdout.isatty())
        self._bar = self.add_task(text, total=total, visible=visible, note="")

    def get_renderables(self) -> Iterator[RenderableType]:
        """Yield the bar and the answers of the first running requests, with a sign for each masked position."""
        yield from super().get_renderables()
        if self.state is not None:
            running = self.state.running[:MOST_ANSWERS]
            most = WIDTH * LINES_OF_ANSWER // max(1, len(running))
            spec = self.state.config.spec
            yield Group(*(answer_text(*framed(sequence, spec), prompt=False)[-most:] for sequence in running))

    def start(self) -> None:
        """Draw the bar at once; rich draws a bar inside another one only at the next refresh."""
        super().start()
        self.refresh()

    def show(self, **values: Any) -> None:
        """Update the bar with arguments of `rich.progress.Progress.update`."""
        self.update(self._bar, **values)


@contextmanager
def drawing(*, enabled: bool) -> Iterator[None]:
    """Draw no bar inside the block unless `enabled`."""
    console = terminal()
    before, console.quiet = console.quiet, console.quiet or not enabled
    try:
        yield
    finally:
        console.quiet = before


def _counts() -> tuple[ProgressColumn, ...]:
    note = TextColumn("{task.fields[note]}")
    return TextColumn("{task.description}"), BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn(), note


@contextmanager
def waiting_line(text: str) -> Iterator[None]:
    """Show what the program is doing, and for how long, until the end of the block."""
    with Bar(text, None, SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()):
        yield


@contextmanager
def progress_bar(total: int, *, enabled: bool) -> Iterator[Callable[[State], None]]:
    """Show how many of `total` requests have ended, on a terminal. Yield the update function.

    Up to `MOST_ANSWERS` answers are shown as they form. Unfinished requests of other callers lower the number.
    """
    with Bar("answers", total, *_counts(), enabled=enabled) as bar:
        first_step: list[int] = []

        def show(state: State) -> None:
            if bar.disable:
                return
            first_step[:] = first_step or [state.step]
            ended = max(0, total - len(state.running) - len(state.waiting))
            bar.state = state if total <= MOST_ANSWERS else None
            note = f"step {state.step - first_step[0]}, {len(state.running)} running, {len(state.waiting)} waiting"
            bar.show(completed=ended, note=note)

        yield show


@contextmanager
def loading_bar(total: int, *, enabled: bool) -> Iterator[Callable[[int], None]]:
    """Show how many of `total` bytes of weights are loaded. Yield a function that adds a number of bytes."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Bar("weights", total, *columns, enabled=enabled) as bar:
        yield lambda size: bar.show(advance=size)


@contextmanager
def capturing_bar(*, enabled: bool) -> Iterator[Callable[[int, int], None]]:
    """Show how many graphs are captured. Yield a function that sets the captured and total numbers."""
    # It becomes visible once there are graphs; a CPU has none.
    with Bar("graphs", None, *_counts(), enabled=enabled, visible=False) as bar:
        yield lambda done, total: bar.show(completed=done, total=total, visible=True)


@contextmanager
def counting_bar(total: int, *, enabled: bool) -> Iterator[Callable[[int, str], None]]:
    """Show how many of `total` answers exist. Yield a function that sets their number and a status."""
    with Bar("answers", total, *_counts(), TimeRemainingColumn(), enabled=enabled) as bar:
        yield lambda done, status: bar.show(completed=done, note=status)


@contextmanager
def download_bars() -> "Iterator[type[tqdm[Any]]]":
    """Yield a subclass of tqdm whose bars are rows of a `Bar`, for libraries that take a class to show downloads."""
    from tqdm.auto import tqdm

    columns = (TextColumn("{task.description}"), BarColumn(20), TextColumn("{task.fields[note]}"))
    with Bar("", None, *columns, visible=False) as area:

        class DownloadBar(tqdm):  # pyright: ignore[reportMissingTypeArgument]
            """A tqdm bar that is a task of `area`. `gui` keeps tqdm from writing to the terminal."""

            def __init__(self, *values: Any, **options: Any) -> None:
                self._task = area.add_task("", total=None, note="", visible=False)
                super().__init__(*values, **{**options, "disable": area.disable, "gui": True})

            def display(self, *values: Any, **options: Any) -> None:
                size = self.format_sizeof if self.unit_scale else str
                note = f"{size(self.n)}/{size(self.total)}" if self.total else size(self.n)
                area.update(self._task, completed=self.n, total=self.total, description=self.desc, note=note, visible=True)

            def clear(self, *values: Any, **options: Any) -> None:
                """Do nothing: the task is removed after the downloads."""

        yield DownloadBar
