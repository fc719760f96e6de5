"""A time limit for strategies and rules, which are user code and may never return.

The core has no clock, so a watchdog thread checks the stepping threads a few times a second. It
raises UserCodeTimeout in a thread that has been in the same call of user code for too long, and the
core turns this into a fault of the request. The overhead of a step is a few dictionary updates.

The watchdog can interrupt only Python code. A call that stays in C, such as a regular expression
that backtracks forever, ends only when the server kills its engine at `engine_timeout`.
"""

import ctypes
import sys
import threading
import time
from collections.abc import Callable
from types import CodeType, FrameType
from typing import TypeVar

from ..core.commit import advanced, forgotten
from ..core.faults import UserCodeTimeout, measured
from ..core.lifecycle import add
from ..core.options import with_options
from ..core.refusals import incompatibility, request_strategy
from ..core.schedule import window_of

# The functions of the core that call user code. They or their callers convert an exception of user code into a fault.
CALLERS: frozenset[CodeType] = frozenset(
    function.__code__
    for function in (add, advanced, forgotten, request_strategy, measured, incompatibility, window_of, with_options)
)
POLL = 0.2  # seconds between two checks
Result = TypeVar("Result")


class Watchdog:
    """A daemon thread that checks every thread of this process that is inside a call of `limited`."""

    def __init__(self) -> None:
        self._limits: dict[int, float] = {}  # by thread: seconds that a call may take
        self._entered: dict[int, float] = {}  # by thread: when it last called `enter`
        # By thread: its call (time of entry, id of the frame) and when a check first saw that call.
        self._calls: dict[int, tuple[tuple[float, int], float]] = {}
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def enter(self, seconds: float) -> float | None:
        """Set the limit of this thread and return its previous one."""
        thread = threading.get_ident()
        outer = self._limits.get(thread)  # nests: garbage collection may run another step
        self._limits[thread] = seconds
        self._entered[thread] = time.monotonic()
        if not self._wake.is_set():
            self._start()
        return outer

    def leave(self, outer: float | None) -> None:
        """Restore the previous limit of this thread."""
        if outer is None:
            self._limits.pop(threading.get_ident(), None)
        else:
            self._limits[threading.get_ident()] = outer

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
                if not self._limits:  # `enter` may have run between the check and `clear`
                    self._wake.wait()
            time.sleep(POLL)
            self._look(time.monotonic())

    def _look(self, now: float) -> None:
        """Interrupt each thread whose current call of user code takes too long.

        Inspecting a stack links its frames to their callers, so an exception that holds one frame
        then holds all of them, and their device memory. The watchdog therefore inspects a thread
        only after its step has taken `seconds`, so a hanging call ends after about twice that time.
        """
        due = [thread for thread, seconds in list(self._limits.items()) if now - self._entered.get(thread, now) >= seconds]
        frames = sys._current_frames() if due else {}
        calls, self._calls = self._calls, {}
        for thread in due:
            frame, seconds = user_call(frames.get(thread)), self._limits.get(thread)
            if self._entered.get(thread, now) < now and not is_limited(frames.get(thread)):
                self._limits.pop(thread, None)  # the thread ended, or an interrupt skipped `leave`
            if frame is None or seconds is None:
                continue
            call = self._entered.get(thread, now), id(frame)
            since = calls[thread][1] if thread in calls and calls[thread][0] == call else now
            self._calls[thread] = call, since
            if now - since >= seconds:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(UserCodeTimeout))


WATCHDOG = Watchdog()


def limited(seconds: float, call: Callable[[], Result]) -> Result:
    """Return the result of `call`; raise UserCodeTimeout in user code that exceeds `seconds`.

    This is not a context manager: its generator would keep an exception's frames and device memory.
    """
    outer = WATCHDOG.enter(seconds)
    try:
        return call()
    finally:
        WATCHDOG.leave(outer)


def is_limited(frame: FrameType | None) -> bool:
    """Return whether a call of `limited` is on this stack."""
    while frame is not None and frame.f_code is not limited.__code__:
        frame = frame.f_back
    return frame is not None


def user_call(frame: FrameType | None) -> FrameType | None:
    """Return the frame of the strategy or rule that the core called; None if there is none."""
    while frame is not None and frame.f_back is not None:
        if frame.f_back.f_code in CALLERS and frame.f_code not in CALLERS:
            return frame
        frame = frame.f_back
    return None
