"""The process that does untrusted work. It does not import this package, so that it starts fast.

It exits if a job exceeds its time or memory limit. Regexes, choices and JSON schemas come from
clients, and even a short one may take minutes.
"""

import faulthandler
import json
import os
import pickle
import sys
from contextlib import suppress
from itertools import count
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

LONGEST = 1 << 26  # bytes of an answer
LONGEST_ERROR = 1000  # characters


def answer(kind: str, arguments: tuple[Any, ...]) -> bytes:
    """Return the result of a job, or the reason why it failed, as a line of JSON. Bytes follow a line with their length."""
    try:
        result = resolve_name(kind)(*arguments)
        binary = result if isinstance(result, bytes) else b""
        line = json.dumps({"bytes": len(binary)} if binary else result).encode() + b"\n" + binary
        if len(line) < LONGEST:
            return line
        error = f"it makes more than {LONGEST} bytes"
    except MemoryError:  # ends this process, so that the parent reports the limit
        raise
    except Exception as raised:  # noqa: BLE001 - a job may raise any exception
        error = f"{'' if isinstance(raised, ValueError) else f'{type(raised).__name__}: '}{raised}"[:LONGEST_ERROR]
    return json.dumps({"error": error}).encode() + b"\n"


def limit_memory(more: int) -> None:
    """Limit the memory of this process to `more` bytes beyond those in use. Has no effect except on Linux."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        import resource

        most = int(statm.read_text().split()[0]) * resource.getpagesize() + more
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def main() -> None:
    """Answer pickled jobs from the parent process until it closes the pipe."""
    with open(os.devnull, "w") as nowhere, os.fdopen(os.dup(1), "wb") as answers, suppress(EOFError):
        os.dup2(nowhere.fileno(), 1)  # what libraries print must not look like an answer
        for number in count():
            seconds, kind, arguments = pickle.load(sys.stdin.buffer)
            # A C thread ends this process, even inside a long operation that holds the GIL.
            faulthandler.dump_traceback_later(seconds, exit=True, file=nowhere)
            line = answer(kind, arguments)
            faulthandler.cancel_dump_traceback_later()
            if number == 0:  # the first job only loads what the others need
                limit_memory(int(sys.argv[1]))
            answers.write(line)
            answers.flush()


if __name__ == "__main__":
    main()
