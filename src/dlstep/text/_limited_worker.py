"""The process that does untrusted work. It does not import this package, so that it starts fast.

It ends if a job exceeds its limit of processor time or memory. Regexes, choices, grammars and JSON schemas
come from clients, and even a short one may take minutes.
"""

import os
import pickle
import signal
import sys
from contextlib import suppress
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

LONGEST = 1 << 26  # bytes of an answer
LONGEST_ERROR = 1000  # characters


def answer(kind: str, arguments: tuple[Any, ...]) -> tuple[str, bytes | None]:
    """Return the error message of a job (empty: it succeeded) and its result (None: its arguments are not to blame)."""
    try:
        result: bytes = resolve_name(kind)(*arguments)
        return ("", result) if len(result) < LONGEST else (f"it makes more than {LONGEST} bytes", b"")
    except MemoryError:  # ends this process, so that the parent reports the limit
        raise
    except Exception as raised:  # noqa: BLE001 - a job may raise any exception
        blamed = isinstance(raised, ValueError | RecursionError)
        reason = f"{'' if blamed else f'{type(raised).__name__}: '}{raised}"[:LONGEST_ERROR]
        return reason.encode(errors="replace").decode(), b"" if blamed else None  # a quoted pattern may have lone surrogates


def limit_memory(more: int) -> None:
    """Limit the memory of this process to `more` bytes beyond those in use. Has no effect except on Linux."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        import resource

        most = int(statm.read_text().split()[0]) * resource.getpagesize() + more
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def limit_time(seconds: float) -> None:
    """Let the kernel end this process by SIGPROF after this processor time; 0: no limit. Has no effect on Windows."""
    if sys.platform != "win32":
        signal.setitimer(signal.ITIMER_PROF, seconds)


def main() -> None:
    """Send an empty answer when ready, then let a copy of this process answer each job, until the parent closes the pipe.

    So each job starts with the same memory, whatever earlier jobs did. If a copy ends without an answer, this process
    ends with the same signal or exit code. On systems without `fork`, it answers one job itself and ends.
    """
    if hasattr(os, "nice"):
        os.nice(10)  # forward passes of other requests have priority
    with open(os.devnull, "w") as nowhere, os.fdopen(os.dup(1), "wb") as answers, suppress(EOFError):
        os.dup2(nowhere.fileno(), 1)  # what libraries print must not look like an answer
        pickle.dump(("", b""), answers)
        answers.flush()
        while True:
            seconds, kind, arguments = pickle.load(sys.stdin.buffer)
            with suppress(ImportError, AttributeError):
                resolve_name(kind)  # imports the module once, for all jobs
            copy = os.fork() if hasattr(os, "fork") else 0
            if not copy:
                limit_memory(int(sys.argv[1]))
                limit_time(seconds)
                result = pickle.dumps(answer(kind, arguments))
                limit_time(0)
                answers.write(result)
                answers.flush()
                os._exit(0)
            _, status = os.waitpid(copy, 0)
            if code := os.waitstatus_to_exitcode(status):
                os.kill(os.getpid(), -code) if code < 0 else os._exit(code)


if __name__ == "__main__":
    main()
