"""The live area at the bottom of the terminal. Everything in a process that shows progress shares it.

Two separate areas would overwrite each other's lines.
"""

import sys
from collections.abc import Generator
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live


class Display:
    """A live area on stderr. It is drawn only if stderr is a terminal that can move its cursor."""

    def __init__(self, *, enabled: bool) -> None:
        self.console = Console(stderr=True)
        self.drawn = enabled and self.console.is_terminal and not self.console.is_dumb_terminal
        self._parts: list[RenderableType] = []
        # Lines that are printed meanwhile go above the area. If stdout is not a terminal, it is not redirected.
        self._live = Live(
            self, console=self.console, transient=True, refresh_per_second=10, redirect_stdout=sys.stdout.isatty()
        )

    def __rich__(self) -> Group:
        return Group(*self._parts)

    @contextmanager
    def showing(self, part: RenderableType) -> Generator[None]:
        """Show `part` below the others until the end of the block."""
        self._parts.append(part)
        try:
            yield
        finally:
            self._parts[:] = [each for each in self._parts if each is not part]

    def start(self) -> None:
        """Draw the parts until `stop`."""
        if self.drawn:
            self._live.start(refresh=True)

    def refresh(self) -> None:
        """Draw the parts now. Imports that follow may keep the drawing thread from running."""
        if self._live.is_started:
            self._live.refresh()

    def stop(self) -> None:
        """Remove the parts from the terminal."""
        self._live.stop()


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
