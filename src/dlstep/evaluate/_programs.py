"""Run the program on stdin in this process, with limits: `_programs.py SECONDS CODE`.

The exit code is CODE only if the program ends without an exception. `programs.py` starts this file with the interpreter outside
virtual environments, so it imports only the standard library.
"""

import os
import resource
import sys

MEMORY = 1 << 30  # bytes of address space
FILES = 1 << 26  # bytes of a file

if __name__ == "__main__":
    for name, most in (("CPU", int(sys.argv[1])), ("AS", MEMORY), ("FSIZE", FILES), ("CORE", 0)):
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (most, most))
    exec(compile(sys.stdin.read(), "program", "exec"), {})
    os._exit(int(sys.argv[2]))  # a program that calls `os._exit(0)` does not come here
