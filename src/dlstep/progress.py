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

from .core import State


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


@contextmanager
def scoring_bar(total: int, *, enabled: bool) -> Iterator[Callable[[int, float], None]]:
    """A function that draws how many of `total` answers are scored, how many of them are right, and their rate."""
    with counting_bar(total, enabled=enabled) as show:
        yield lambda done, score: show(done, f"{100 * score / done:.1f} % right")
