"""Progress bars for batches of requests, loading and downloads, as tasks of one live area at the bottom of the terminal.

Two separate areas would overwrite each other's lines.
"""

import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table
from rich.text import Text

from ..core import State
from ..text.words import WIDTH
from .terminal import answer_text

if TYPE_CHECKING:
    from tqdm.auto import tqdm

MOST_ANSWERS = 8  # with more requests, only their number is shown
LINES_OF_ANSWER = 8


class Display(Progress):
    """A live area on stderr, drawn only if stderr is a terminal that can move its cursor.

    Each task has `columns` of its own, and may have a `state`, whose answers are shown below it.
    """

    def __init__(self, *, enabled: bool) -> None:
        console = Console(stderr=True)
        drawn = enabled and console.is_terminal and not console.is_dumb_terminal
        # Lines that are printed meanwhile go above the area. If stdout is not a terminal, it is not redirected.
        super().__init__(console=console, transient=True, disable=not drawn, redirect_stdout=sys.stdout.isatty())

    def get_renderables(self) -> Iterator[RenderableType]:
        """Yield a line for each visible task, and its answers."""
        for task in self.tasks:
            if task.visible:
                columns: tuple[ProgressColumn, ...] = task.fields["columns"]
                line = Table.grid(*(column.get_table_column().copy() for column in columns), padding=(0, 1))
                line.add_row(*(column(task) for column in columns))
                yield line
            if (state := task.fields.get("state")) is not None:
                yield forming_answers(state)


def forming_answers(state: State) -> Group:
    """Return the answers of the first running requests, with a sign for each masked position."""
    running = state.running[:MOST_ANSWERS]
    most = WIDTH * LINES_OF_ANSWER // max(1, len(running))
    return Group(*(answer_text(sequence, state, prompt=False)[-most:] for sequence in running))


_open: list[Display] = []  # the display of this process, if one is open


@contextmanager
def display(*, enabled: bool = True) -> Generator[Display]:
    """Yield the open display of this process. If there is none, open one until the end of the block.

    `enabled` applies to a new display only. If it is False, nothing that is shown inside the block is drawn.
    """
    if _open:
        yield _open[0]
        return
    area = Display(enabled=enabled)
    _open.append(area)
    try:
        area.start()
        yield area
    finally:
        _open.remove(area)
        area.stop()


def close() -> None:
    """Remove the open display from the terminal, if there is one."""
    for area in _open:
        area.stop()


class RateColumn(ProgressColumn):
    """The speed of a task in units per second."""

    def render(self, task: Task) -> Text:
        """Return the speed; empty while it is unknown."""
        return Text(f"{task.speed:.1f} a second" if task.speed else "")


@contextmanager
def bar(
    text: str, total: int | None, *columns: ProgressColumn, enabled: bool = True, visible: bool = True
) -> Iterator[Callable[..., None]]:
    """Show a bar as a part of the display. Yield `rich.progress.Progress.update` for its task."""
    with display(enabled=enabled) as area:
        task = area.add_task(text, total=total, visible=visible, columns=columns, note="")
        try:
            yield partial(area.update, task)
        finally:
            area.remove_task(task)


def _counts() -> tuple[ProgressColumn, ...]:
    return TextColumn("{task.description}"), BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn()


@contextmanager
def waiting_line(text: str) -> Iterator[None]:
    """Show what the program is doing, and for how long, until the end of the block."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with bar(text, None, *columns):
        yield


@contextmanager
def progress_bar(total: int, *, enabled: bool) -> Iterator[Callable[[State], None]]:
    """Show how many of `total` requests have ended, on a terminal. Yield the update function.

    Up to `MOST_ANSWERS` answers are shown as they form. Unfinished requests of other callers lower the number.
    """
    with display(enabled=enabled) as area, bar("answers", total, *_counts(), TextColumn("{task.fields[note]}")) as update:
        first_step: list[int] = []

        def show(state: State) -> None:
            if area.disable:
                return
            first_step[:] = first_step or [state.step]
            ended = max(0, total - len(state.running) - len(state.waiting))
            note = f"step {state.step - first_step[0]}, {len(state.running)} running, {len(state.waiting)} waiting"
            update(completed=ended, note=note, state=state if total <= MOST_ANSWERS else None)

        yield show


@contextmanager
def loading_bar(total: int, *, enabled: bool) -> Iterator[Callable[[int], None]]:
    """Show how many of `total` bytes of weights are loaded. Yield a function that adds a number of bytes."""
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with bar("weights", total, TextColumn("{task.description}"), *columns, enabled=enabled) as update:
        yield lambda size: update(advance=size)


@contextmanager
def capturing_bar(*, enabled: bool) -> Iterator[Callable[[int, int], None]]:
    """Show how many graphs are captured. Yield a function that sets the captured and total numbers."""
    # It becomes visible once there are graphs; a CPU has none.
    with bar("graphs", None, *_counts(), enabled=enabled, visible=False) as update:
        yield lambda done, total: update(completed=done, total=total, visible=True)


@contextmanager
def counting_bar(total: int, *, enabled: bool) -> Iterator[Callable[[int, str], None]]:
    """Show how many of `total` answers exist. Yield a function that sets their number and a status."""
    with bar("answers", total, *_counts(), TextColumn("{task.fields[note]}"), RateColumn(), enabled=enabled) as update:
        yield lambda done, status: update(completed=done, note=status)


@contextmanager
def measuring_bar(total: int | None) -> Iterator[Callable[[str], None] | None]:
    """Show how many of `total` rows are measured. Yield None if no bar is drawn.

    Otherwise, yield a function that counts one more row and shows its description.

    Rows arrive in bursts, half a minute apart: a spinner and a clock show that the program is running.
    """
    with display() as area, bar("measuring", total, SpinnerColumn(), *_counts(), TextColumn("{task.fields[note]}")) as update:
        yield (lambda words: update(advance=1, note=f"after {words}")) if not area.disable else None


@contextmanager
def download_bars() -> "Iterator[type[tqdm[Any]]]":
    """Yield a subclass of tqdm whose bars are parts of the display, for libraries that show downloads with a given class."""
    from tqdm.auto import tqdm

    columns = (TextColumn("{task.description}"), BarColumn(20), TextColumn("{task.fields[count]}"))
    with display() as area:
        tasks: list[TaskID] = []

        class DownloadBar(tqdm):  # pyright: ignore[reportMissingTypeArgument]
            """A tqdm bar that is a task of the display. `gui` keeps tqdm from writing to the terminal."""

            def __init__(self, *values: Any, **options: Any) -> None:
                self._task = area.add_task("", total=None, columns=columns, count="", visible=False)
                tasks.append(self._task)
                super().__init__(*values, **{**options, "disable": area.disable, "gui": True})

            def display(self, *values: Any, **options: Any) -> None:
                size = self.format_sizeof if self.unit_scale else str
                count = f"{size(self.n)}/{size(self.total)}" if self.total else size(self.n)
                area.update(self._task, completed=self.n, total=self.total, description=self.desc, count=count, visible=True)

            def clear(self, *values: Any, **options: Any) -> None:
                """Do nothing: the task is removed after the downloads."""

        try:
            yield DownloadBar
        finally:
            for task in tasks:
                area.remove_task(task)
