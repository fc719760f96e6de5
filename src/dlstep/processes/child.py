"""The side of a worker process: signals, its parent's end, and its last words."""

import os
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from ctypes import CDLL
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path

Target = Callable[..., None]  # takes a Connection first

LONGEST = 1000  # characters of last words
PARENTS_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
_PR_SET_PDEATHSIG = 1

_words: list[Connection] = []  # where this process, if it is a worker, sends its last words; empty once it has


def run(connection: Connection, words: Connection, packed: bytes) -> None:
    """Run a pickled target in the worker process; an exception that it does not catch becomes the reason of its death.

    So does one that its modules raise when they are imported, which unpickling does.
    """
    _words.append(words)
    for number in PARENTS_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):  # blocked since the start, see `spawner`
        signal.pthread_sigmask(signal.SIG_UNBLOCK, PARENTS_SIGNALS)
    _end_with_parent()
    try:
        target, arguments = pickle.loads(packed)
        target(connection, *arguments)
    except Exception as error:
        last_words(_told(error))
        raise  # multiprocessing prints the traceback and ends the process with exit code 1


def last_words(reason: str) -> None:
    """Tell the parent, in a worker process, why this process is about to end; the first reason counts. Else do nothing."""
    with suppress(IndexError, OSError):  # no worker, or not the first reason; or the parent is gone
        _words.pop().send(" ".join(reason.split())[:LONGEST])


def _told(error: BaseException) -> str:
    """An exception in a line: its class, its message, and where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{place}"


def _end_with_parent() -> None:
    """See to it that this process ends when its parent does, in the middle of a forward pass or while it is stopped.

    A thread can do that only while the process runs, so on Linux the kernel is asked to kill it. A child of a forkserver has
    another parent for the kernel, and the thread alone.
    """
    parent = parent_process()
    assert parent is not None, "a worker is started by another process"
    if sys.platform == "linux" and os.getppid() == parent.pid:
        CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=_watch, args=(parent.sentinel,), name="dlstep-parent", daemon=True).start()


def _watch(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)
