"""The process that compiles constraints: what can happen to it."""

import os
import signal
from pathlib import Path
from threading import Timer

from dlstep.text import constraints

_kept: list[bytes] = []


def hoarded(size: int) -> bytes:
    """Return so many bytes, and keep them: a job that would leave less memory for others."""
    _kept.append(bytes(size))
    return _kept[-1]


def kept() -> bytes:
    """Return how many results are kept."""
    return str(len(_kept)).encode()


def endless(path: str) -> bytes:
    """Write the id of the process to a file, and work for ever."""
    part = Path(path).with_suffix(".part")
    part.write_text(str(os.getpid()))
    part.rename(path)
    while True:
        pass


def suspend_compiler() -> None:
    """Suspend the process, so that it does not end its next job, and kill it a little later."""
    constraints._worker.ask("builtins:bytes")
    process = constraints._worker._process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    Timer(0.3, process.kill).start()
