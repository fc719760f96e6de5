"""Delay Ctrl-C until a forward pass of several ranks is complete, so that ranks stay in step."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def delayed_interrupt() -> Iterator[None]:
    """Delay an interrupt to the end of the block. A second one raises KeyboardInterrupt at once."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before in (None, signal.SIG_IGN, signal.SIG_DFL):
        yield  # Python raises no KeyboardInterrupt here
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
