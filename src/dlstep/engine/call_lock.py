"""A lock that no interrupt can leave locked.

An exception raised by a signal, such as KeyboardInterrupt, may come between any two bytecodes, also inside a `finally` block
just before a lock is released. `CallLock` belongs to a function call and needs no release: it is free once the frame of that
call does not execute any more, whatever ended the call.
"""

from threading import Lock, get_ident
from types import FrameType

POLL = 0.1  # seconds between two checks whether a call ended without a release


class Hold:
    """A claim of one call on a `CallLock`.

    Args:
        frame: The frame of the function call, `sys._getframe()` there; not a generator's. None for a claim that is over.
    """

    __slots__ = ("_frame", "_released", "_thread", "next")

    def __init__(self, frame: FrameType | None) -> None:
        self._frame, self._thread, self._released = frame, get_ident(), Lock()
        self._released.acquire()
        self.next: list[Hold] = []  # the first one has the lock after this one

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
        except RuntimeError:  # "cannot clear an executing frame": the only test of this that no other thread can invalidate
            return False
        self._frame = None
        return True

    def is_own(self) -> bool:
        """Return whether the calling thread is inside the call that holds the lock."""
        return self._thread == get_ident() and not self.over()

    def wait(self) -> None:
        """Return once the hold is over."""
        while not self.over():
            if self._released.acquire(timeout=POLL):
                self._released.release()  # wake the next waiting thread


class CallLock:
    """A lock of which each hold belongs to a function call.

    Appending to a list is atomic, so of several threads that want to follow the same hold, the first to append has the lock. No
    other lock protects the choice, so there is none that an interrupt could leave locked.
    """

    def __init__(self) -> None:
        self._last = Hold(None)  # the latest hold, or an earlier one

    def acquire(self, mine: Hold) -> Hold | None:
        """Take the lock without waiting; return None, or the hold of another call that has the lock."""
        last = self._last
        while last.over():
            last.next.append(mine)
            last = last.next[0]
            if last is mine:
                self._last = mine
                return None
        return last
