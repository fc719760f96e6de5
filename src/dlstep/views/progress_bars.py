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
    """A function that draws how many of `total` requests have ended, on stderr; nothing where stderr is no terminal.

    Requests of other callers count as not ended while they are live.
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
    """A function that draws how many more of `total` bytes of weights are loaded; where and when as `progress_bar`."""
    console = Console(stderr=True)
    columns = (TextColumn("weights"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not (enabled and console.is_terminal)) as bar:
        task = bar.add_task("weights", total=total)
        yield lambda size: bar.advance(task, size)


@contextmanager
def capturing_bar(*, enabled: bool) -> Iterator[Callable[[int, int], None]]:
    """A function that draws how many of how many graphs are captured; where and when as `progress_bar`."""
    console = Console(stderr=True)
    columns = (TextColumn("graphs"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not (enabled and console.is_terminal)) as bar:
        task = bar.add_task("graphs", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def counting_bar(total: int, *, enabled: bool) -> Iterator[Callable[[int, str], None]]:
    """A function that draws how many of `total` answers are there, their rate and some words; where and when as above."""
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

        def show(done: int, said: str) -> None:
            if bar.disable:
                return
            first[:] = first or [done - 1]  # those of an earlier run took no time now
            took = bar.tasks[0].elapsed or 0.0
            rate = f"{(done - first[0]) / took:.1f} a second" if took else ""
            bar.update(task, completed=done, rate=", ".join(filter(None, (said, rate))))

        yield show


class TuningBar:
    """Draws the round of a search that is under way, and how many answers the whole search has."""

    def __init__(self, bar: Progress) -> None:
        self._bar, self._task, self._before, self._done = bar, bar.add_task("", total=None, rate=""), 0, 0

    def begin(self, what: str, total: int) -> None:
        """A part with `total` answers begins."""
        self._before = self._done
        self._bar.reset(self._task, total=total, description=what)

    def answered(self, done: int, score: float) -> None:
        """So many answers of the whole run have been scored, with this sum of scores."""
        self._done = done
        took = self._bar.tasks[0].elapsed or 0.0
        new = done - self._before
        rate = f"{new / took:.0f} a second" if took else ""
        self._bar.update(self._task, completed=new, rate=rate)


@contextmanager
def tuning_bar(*, enabled: bool) -> Iterator[TuningBar]:
    """A bar for the rounds of a search; where and when as `progress_bar`."""
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
    """A function that draws how many of `total` answers are scored, how many of them are right, and their rate."""
    with counting_bar(total, enabled=enabled) as show:
        yield lambda done, score: show(done, f"{100 * score / done:.1f} % right")
