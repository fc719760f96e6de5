"""A lock that no interrupt can leave locked.

An exception raised by a signal, such as KeyboardInterrupt, can arrive between any two bytecodes,
even in a `finally` block just before a lock is released. A `CallLock` is held by a function call
instead: once the frame of that call no longer executes, the lock is free, however the call ended.
"""

from threading import Lock, get_ident
from types import FrameType

POLL = 0.1  # seconds between two checks for a call that ended without releasing


class Hold:
    """A claim of one call on a `CallLock`.

    Args:
        frame: The frame of the call, from `sys._getframe()` in it; must not be a generator's frame.
            None for a hold that is already over.
    """

    __slots__ = ("_frame", "_released", "_thread", "next")

    def __init__(self, frame: FrameType | None) -> None:
        self._frame, self._thread, self._released = frame, get_ident(), Lock()
        self._released.acquire()
        self.next: list[Hold] = []  # the first entry gets the lock after this hold

    def release(self) -> None:
        """Free the lock and wake the threads that wait for it."""
        self._frame = None
        self._released.release()

    def over(self) -> bool:
        """Return whether the lock was released, or the call that held it has ended."""
        frame = self._frame
        if frame is None:
            return True
        try:
            frame.clear()
        except RuntimeError:  # still executing; the only check that is free of races
            return False
        self._frame = None
        return True

    def is_own(self) -> bool:
        """Return whether the calling thread is inside the call that holds the lock."""
        return self._thread == get_ident() and not self.over()

    def wait(self) -> None:
        """Block until the hold is over."""
        while not self.over():
            if self._released.acquire(timeout=POLL):
                self._released.release()  # wake the next waiting thread


class CallLock:
    """A lock that is held by a function call and freed when that call ends.

    Each hold has a list of its successors. Appending to a list is atomic, so of several threads
    that compete to succeed the same hold, the first to append gets the lock. No inner lock is
    needed, so an interrupt cannot leave one locked.
    """

    def __init__(self) -> None:
        self._last = Hold(None)  # the latest hold, or an earlier one that leads to it by `next`

    def acquire(self, mine: Hold) -> Hold | None:
        """Acquire the lock without blocking. Return None, or the hold of the call that has it."""
        last = self._last
        while last.over():
            last.next.append(mine)
            last = last.next[0]
            if last is mine:
                self._last = mine
                return None
        return last
