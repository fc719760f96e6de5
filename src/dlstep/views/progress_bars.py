"""Progress bars for batches of requests, loading and downloads. All of them are parts of one display."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Group
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
from .display import display
from .terminal import answer_text

if TYPE_CHECKING:
    from tqdm.auto import tqdm

MOST_ANSWERS = 8  # with more requests, only their number is shown
LINES_OF_ANSWER = 8


@contextmanager
def _shown(*columns: ProgressColumn, enabled: bool = True) -> Iterator[Progress]:
    """Yield a bar that is a part of the display. It is disabled if the display is not drawn."""
    with display(enabled=enabled) as area:
        bar = Progress(*columns, console=area.console, auto_refresh=False, disable=not area.drawn)
        with area.showing(bar):
            yield bar


@contextmanager
def waiting_line(text: str, *, enabled: bool = True) -> Iterator[None]:
    """Show what the program is doing, and for how long, until the end of the block."""
    with _shown(SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), enabled=enabled) as bar:
        bar.add_task(text, total=None)
        with display() as area:
            area.refresh()
        yield


class FormingAnswers:
    """The answers of the running requests of the latest state, with a sign for each masked position."""

    def __init__(self) -> None:
        self.state: State | None = None

    def __rich__(self) -> Group:
        state = self.state
        if state is None:
            return Group()
        running = state.running[:MOST_ANSWERS]
        most = WIDTH * LINES_OF_ANSWER // max(1, len(running))
        texts = (answer_text(sequence, state, prompt=False) for sequence in running)
        return Group(*(text[-most:] if len(text) > most else text for text in texts))


def answer_columns() -> tuple[ProgressColumn, ...]:
    """Return the columns of a bar that counts answers."""
    return TextColumn("answers"), BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.fields[rate]}")


@contextmanager
def progress_bar(total: int, *, enabled: bool) -> Iterator[Callable[[State], None]]:
    """Show how many of `total` requests have ended, on a terminal. Yield the update function.

    Up to `MOST_ANSWERS` answers are shown as they form. Unfinished requests of other callers lower the number.
    """
    forming = FormingAnswers()
    with display(enabled=enabled) as area, area.showing(forming), _shown(*answer_columns()) as bar:
        task = bar.add_task("answers", total=total, rate="")
        first_step: list[int] = []

        def show(state: State) -> None:
            if bar.disable:
                return
            if total <= MOST_ANSWERS:
                forming.state = state
            first_step[:] = first_step or [state.step]
            ended = max(0, total - len(state.running) - len(state.waiting))
            running = f"step {state.step - first_step[0]}, {len(state.running)} running, {len(state.waiting)} waiting"
            bar.update(task, completed=ended, rate=running)

        yield show


@contextmanager
def loading_bar(total: int, *, enabled: bool) -> Iterator[Callable[[int], None]]:
    """Show how many of `total` bytes of weights are loaded. Yield a function that adds a number of bytes."""
    columns = (TextColumn("weights"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with _shown(*columns, enabled=enabled) as bar:
        task = bar.add_task("weights", total=total)
        yield lambda size: bar.advance(task, size)


@contextmanager
def capturing_bar(*, enabled: bool) -> Iterator[Callable[[int, int], None]]:
    """Show how many graphs are captured. Yield a function that sets the captured and total numbers."""
    columns = (TextColumn("graphs"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with _shown(*columns, enabled=enabled) as bar:
        task = bar.add_task("graphs", total=None, visible=False)  # visible once there are graphs; a CPU has none
        yield lambda done, total: bar.update(task, completed=done, total=total, visible=True)


@contextmanager
def counting_bar(total: int, *, enabled: bool) -> Iterator[Callable[[int, str], None]]:
    """Show how many of `total` answers exist. Yield a function that sets their number and a status."""
    with _shown(*answer_columns(), enabled=enabled) as bar:
        task = bar.add_task("answers", total=total, rate="")
        first: list[int] = []

        def show(done: int, status: str) -> None:
            if bar.disable:
                return
            first[:] = first or [done - 1]  # the rate excludes answers of an earlier run
            seconds = bar.tasks[0].elapsed or 0.0
            rate = f"{(done - first[0]) / seconds:.1f} a second" if seconds else ""
            bar.update(task, completed=done, rate=", ".join(filter(None, (status, rate))))

        yield show


@contextmanager
def scoring_bar(total: int, *, enabled: bool) -> Iterator[Callable[[int, float], None]]:
    """Show how many of `total` answers are scored. Yield a function that sets their number and the sum of their scores."""
    with counting_bar(total, enabled=enabled) as show:
        yield lambda done, score: show(done, f"{100 * score / done:.1f} % right")


@contextmanager
def measuring_bar(total: int | None) -> Iterator[Callable[[str], None] | None]:
    """Show how many of `total` rows are measured. Yield None if no bar is drawn.

    Otherwise, yield a function that counts one more row and shows its description.

    Rows arrive in bursts, half a minute apart: a spinner and a clock show that the program is running.
    """
    columns = (SpinnerColumn(), TextColumn("measuring"), BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn())
    with _shown(*columns, TextColumn("{task.description}")) as bar:
        task = bar.add_task("", total=total)
        yield None if bar.disable else lambda words: bar.update(task, advance=1, description=f"after {words}")


@contextmanager
def download_bars() -> "Iterator[type[tqdm[Any]]]":
    """Yield a subclass of tqdm whose bars are parts of the display, for libraries that show downloads with a given class."""
    from tqdm.auto import tqdm

    with _shown(TextColumn("{task.description}"), BarColumn(20), TextColumn("{task.fields[count]}")) as shown:

        class DownloadBar(tqdm):  # pyright: ignore[reportMissingTypeArgument]
            """A tqdm bar that is a task of `shown`. `gui` keeps tqdm from writing to the terminal."""

            def __init__(self, *values: Any, **options: Any) -> None:
                self._task = shown.add_task("", total=None, count="", visible=False)
                super().__init__(*values, **{**options, "disable": shown.disable, "gui": True})

            def display(self, *values: Any, **options: Any) -> None:
                size = self.format_sizeof if self.unit_scale else str
                count = f"{size(self.n)}/{size(self.total)}" if self.total else size(self.n)
                shown.update(self._task, completed=self.n, total=self.total, description=self.desc, count=count, visible=True)

            def clear(self, *values: Any, **options: Any) -> None:
                """Do nothing: the task is removed with `shown`."""

        yield DownloadBar
