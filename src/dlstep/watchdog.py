"""A time limit for strategies and rules, which are user code and may never return.

The core has no clock, so a thread beside it looks at the threads that step, a few times a second. One that has been inside the
same call of user code for too long gets a UserCodeTimeout raised in it, which the core turns into a fault of the request that
the call is for. A step costs a few entries of dictionaries.

Only Python code can be stopped this way: a call that stays inside C, such as a regular expression that backtracks for ever, is
ended by the deadlines of the server's engine.
"""

import ctypes
import sys
import threading
import time
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
    """Watches the threads of this process that are inside a `Limit`."""

    def __init__(self) -> None:
        self._limits: dict[int, float] = {}  # seconds that a call may take, by thread
        self._entered: dict[int, float] = {}  # when a thread entered its limit last
        # The call that a thread was seen in, and since when: its entry and the address of the frame.
        self._calls: dict[int, tuple[tuple[float, int], float]] = {}
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def enter(self, seconds: float) -> float | None:
        """Watch this thread from now on; the limit that it had before."""
        thread = threading.get_ident()
        outer = self._limits.get(thread)  # a step in which a stream is collected may run a part of another one
        self._limits[thread] = seconds
        self._entered[thread] = time.monotonic()
        if not self._wake.is_set():
            self._start()
        return outer

    def leave(self, outer: float | None) -> None:
        """Return to the limit that this thread had before."""
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
                if not self._limits:  # else one came in between, and may have seen the event set
                    self._wake.wait()
            time.sleep(POLL)
            self._look(time.monotonic())

    def _look(self, now: float) -> None:
        """Look at what each thread is in that entered its limit long ago.

        Looking at a stack has a price: its frames are then linked to their callers for as long as an exception holds them, and
        with them the memory of a device. So a thread is left alone until its step has taken `seconds`; a call that does not
        return is ended after at most twice that time.
        """
        due = [thread for thread, seconds in list(self._limits.items()) if now - self._entered.get(thread, now) >= seconds]
        frames = sys._current_frames() if due else {}
        calls, self._calls = self._calls, {}
        for thread in due:
            frame, seconds = user_call(frames.get(thread)), self._limits.get(thread)
            if frame is None or seconds is None:
                continue
            call = self._entered.get(thread, now), id(frame)
            since = calls[thread][1] if thread in calls and calls[thread][0] == call else now
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


class Limit:
    """A context in which a call of user code raises UserCodeTimeout after `seconds`. It may be entered again, one at a time.

    No generator: one that an exception passes through holds the frames of the exception, and with them a device's memory.
    """

    __slots__ = ("_outer", "_seconds")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._outer: float | None = None

    def __enter__(self) -> None:
        self._outer = WATCHDOG.enter(self._seconds)

    def __exit__(self, *exception: object) -> None:
        WATCHDOG.leave(self._outer)
