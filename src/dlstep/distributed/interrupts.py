"""Ctrl-C between forwards of several ranks, not within: what one rank leaves half done puts all others out of step."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def held_back() -> Iterator[None]:
    """Let an interrupt wait for the end of the block; a second one raises KeyboardInterrupt at once."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before in (None, signal.SIG_IGN, signal.SIG_DFL):
        yield  # no interrupt is raised here
        return
    waiting: list[int] = []

    def hold(number: int, frame: FrameType | None) -> None:
        del frame
        if waiting:
            raise KeyboardInterrupt
        waiting.append(number)

    signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if waiting:
        signal.raise_signal(signal.SIGINT)
