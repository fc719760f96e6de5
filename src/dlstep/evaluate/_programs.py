"""The process that runs programs, one at a time: a line of JSON with a program in, a line with a Boolean out.

`programs.py` starts this file with the interpreter outside virtual environments, so it imports only
the standard library.
"""

import json
import os
import resource
import select
import signal
import sys
from contextlib import suppress

MEMORY = 1 << 30  # bytes of address space
FILES = 1 << 26  # bytes of a file


def passes(program: str, seconds: float) -> bool:
    """Return whether a program ends without an exception, in a child process with limits."""
    ended, report = os.pipe()
    if not (child := os.fork()):
        try:
            os.setsid()
            for name, most in (("CPU", int(seconds) + 1), ("AS", MEMORY), ("FSIZE", FILES), ("CORE", 0)):
                resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (most, most))
            with open(os.devnull, "r+b", 0) as nowhere:
                for number in range(3):
                    os.dup2(nowhere.fileno(), number)
            exec(compile(program, "program", "exec"), {})
            os.write(report, b"1")  # a program that calls `os._exit(0)` does not come here
        finally:
            os._exit(0)
    os.close(report)
    ready, _, _ = select.select([ended], [], [], seconds)
    passed = bool(ready) and os.read(ended, 1) == b"1"
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(ended)
    return passed


def main() -> None:
    """Answer each line until the input ends; the first argument is the limit in seconds."""
    for line in sys.stdin:
        print(json.dumps(passes(json.loads(line), float(sys.argv[1]))), flush=True)


if __name__ == "__main__":
    main()
