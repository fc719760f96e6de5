"""Progress bars for batches of requests and for loading."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from ..core import State


@contextmanager
def progress_bar(total: int, *, enabled: bool) -> Iterator[Callable[[State], None]]:
    """Show how many of `total` requests have ended, on a terminal. Yield the update function.

    Live requests of other callers count as not ended.
    """
    console = Console(stderr=True)
    columns = (TextColumn("answers"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.fields[rate]}"))
    with Progress(*columns, console=console, transient=True, disable=not (enabled and console.is_terminal)) as bar:
        task = bar.add_task("answers", total=total, rate="")
        first_step: list[int] = []

        def show(state: State) -> None:
            if bar.disable:
                return
            first_step[:] = first_step or [state.step]
            ended = max(0, total - len(state.running) - len(state.waiting))
            running = f"step {state.step - first_step[0]}, {len(state.running)} running, {len(state.waiting)} waiting"
            bar.update(task, completed=ended, rate=running)

        yield show


@contextmanager
def loading_bar(total: int, *, enabled: bool) -> Iterator[Callable[[int], None]]:
    """Show how many of `total` bytes of weights are loaded. Yield a function of the added bytes."""
    console = Console(stderr=True)
    columns = (TextColumn("weights"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not (enabled and console.is_terminal)) as bar:
        task = bar.add_task("weights", total=total)
        yield lambda size: bar.advance(task, size)


@contextmanager
def capturing_bar(*, enabled: bool) -> Iterator[Callable[[int, int], None]]:
    """Show how many graphs are captured. Yield a function of the captured and total numbers."""
    console = Console(stderr=True)
    columns = (TextColumn("graphs"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not (enabled and console.is_terminal)) as bar:
        task = bar.add_task("graphs", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def counting_bar(total: int, *, enabled: bool) -> Iterator[Callable[[int, str], None]]:
    """Show how many of `total` answers exist. Yield a function of their number and a status."""
    console = Console(stderr=True)
    columns = (
        TextColumn("answers"),
        BarColumn(20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[rate]}"),
    )
    with Progress(*columns, console=console, transient=True, disable=not (enabled and console.is_terminal)) as bar:
        task = bar.add_task("answers", total=total, rate="")
        first: list[int] = []

        def show(done: int, status: str) -> None:
            if bar.disable:
                return
            first[:] = first or [done - 1]  # answers of an earlier run do not count
            seconds = bar.tasks[0].elapsed or 0.0
            rate = f"{(done - first[0]) / seconds:.1f} a second" if seconds else ""
            bar.update(task, completed=done, rate=", ".join(filter(None, (status, rate))))

        yield show


class TuningBar:
    """A progress bar of the current round of a search."""

    def __init__(self, bar: Progress) -> None:
        self._bar, self._task, self._before, self._done = bar, bar.add_task("", total=None, rate=""), 0, 0

    def begin(self, what: str, total: int) -> None:
        """Begin a round with `total` answers."""
        self._before = self._done
        self._bar.reset(self._task, total=total, description=what)

    def answered(self, done: int, score: float) -> None:
        """Set the number of scored answers of the whole search. `score` is not shown."""
        self._done = done
        seconds = self._bar.tasks[0].elapsed or 0.0
        new = done - self._before
        rate = f"{new / seconds:.0f} a second" if seconds else ""
        self._bar.update(self._task, completed=new, rate=rate)


@contextmanager
def tuning_bar(*, enabled: bool) -> Iterator[TuningBar]:
    """Show the rounds of a search, if stderr is a terminal."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(16),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[rate]}"),
    )
    with Progress(*columns, console=console, transient=True, disable=not (enabled and console.is_terminal)) as bar:
        yield TuningBar(bar)


@contextmanager
def scoring_bar(total: int, *, enabled: bool) -> Iterator[Callable[[int, float], None]]:
    """Show how many of `total` answers are scored. Yield a function of number and score."""
    with counting_bar(total, enabled=enabled) as show:
        yield lambda done, score: show(done, f"{100 * score / done:.1f} % right")
