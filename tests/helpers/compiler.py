"""The process that compiles constraints: what can happen to it."""

import signal

from dlstep.text import constraints

_kept: list[bytes] = []


def hoarded(size: int) -> bytes:
    """Return so many bytes, and keep them: a job that leaves less memory for others."""
    _kept.append(bytes(size))
    return _kept[-1]


def suspend_compiler() -> None:
    """Suspend the process, so that it does not end its next job."""
    constraints._worker.ask("builtins:bytes")
    assert constraints._worker._process is not None
    constraints._worker._process.send_signal(signal.SIGSTOP)
