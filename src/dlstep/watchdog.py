"""A time limit for strategies and rules, which are user code and may never return.

The core has no clock, so a thread beside it looks at the threads that step, a few times a second. One that has been inside the
same call of user code for too long gets a UserCodeTimeout raised in it, which the core turns into a fault of the request that
the call is for. A step costs two entries of a dictionary.

Only Python code can be stopped this way: a call that stays inside C, such as a regular expression that backtracks for ever, is
ended by the deadlines of the server's engine.
"""

import ctypes
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType

from .core.commit import advanced, forgotten
from .core.faults import UserCodeTimeout, measured
from .core.lifecycle import add, judged
from .core.schedule import window_of

# The functions of the core that call user code, each within the boundary that turns what it raises into a fault.
CALLERS: frozenset[CodeType] = frozenset(
    function.__code__ for function in (add, advanced, forgotten, judged, measured, window_of)
)
POLL = 0.2  # seconds between two looks


class Watchdog:
    """Watches the threads of this process that are inside `limit`."""

    def __init__(self) -> None:
        self._limits: dict[int, float] = {}  # seconds that a call may take, by thread
        self._calls: dict[int, tuple[FrameType, float]] = {}  # the call that a thread was seen in, and since when
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    @contextmanager
    def limit(self, seconds: float) -> Iterator[None]:
        """Raise UserCodeTimeout in this thread inside a call of user code that takes longer than `seconds` within the block."""
        thread = threading.get_ident()
        outer = self._limits.get(thread)  # a step in which a stream is collected may run a part of another one
        self._limits[thread] = seconds
        if not self._wake.is_set():
            self._start()
        try:
            yield
        finally:
            if outer is None:
                self._limits.pop(thread, None)
            else:
                self._limits[thread] = outer

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="dlstep-watchdog", daemon=True)
                self._thread.start()
            self._wake.set()

    def _watch(self) -> None:
        while True:
            if not self._limits:
                self._calls.clear()
                self._wake.clear()
                if not self._limits:  # else one came in between, and may have seen the event set
                    self._wake.wait()
            time.sleep(POLL)
            self._look(time.monotonic())

    def _look(self, now: float) -> None:
        """Look at what each thread is in. The frame is kept, so that no later call can be mistaken for it."""
        frames = sys._current_frames()
        for thread, seconds in list(self._limits.items()):
            call = user_call(frames.get(thread))
            seen = self._calls.pop(thread, None)
            if call is None:
                continue
            since = seen[1] if seen is not None and seen[0] is call else now
            self._calls[thread] = call, since
            if now - since >= seconds:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(UserCodeTimeout))


def user_call(frame: FrameType | None) -> FrameType | None:
    """The frame of the strategy's or the rule's method that the core has called on this stack; None if there is none."""
    while frame is not None and frame.f_back is not None:
        if frame.f_back.f_code in CALLERS and frame.f_code not in CALLERS:
            return frame
        frame = frame.f_back
    return None


WATCHDOG = Watchdog()
