"""The process that compares mathematical answers. Its parent ends it when it takes too long."""

import logging
import os
from contextlib import suppress
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path

MEMORY = 2 << 30  # bytes
LONGEST = 200  # characters of what was read


def compared(job: dict[str, str]) -> dict[str, object]:
    """Whether the two answers of a job are equal, and what was read in the found one."""
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

    kinds = (LatexExtractionConfig(), ExprExtractionConfig())
    found = f"\\boxed{{{job['found']}}}" if job["boxed"] else job["found"]
    # No time limits of its own: they hold for what Python runs, not for a power of two numbers.
    expected = parse(f"\\boxed{{{job['gold']}}}", kinds, parsing_timeout=None)  # pyright: ignore[reportArgumentType]
    read = parse(found, kinds, parsing_timeout=None)  # pyright: ignore[reportArgumentType]
    text = str(read[-1])[:LONGEST] if read else ""
    return {"equal": bool(read) and verify(expected, read, timeout_seconds=None), "read": text}


def _limit_memory() -> None:
    """Let a formula that grows end in an error; Windows has no such limit, there the time limit alone ends it."""
    if find_spec("resource") is not None:
        import resource

        statm = Path("/proc/self/statm")  # what the parent's script has imported is here, too
        begun = int(statm.read_text().split()[0]) * resource.getpagesize() if statm.exists() else 0
        resource.setrlimit(resource.RLIMIT_AS, (begun + MEMORY, begun + MEMORY))


def answer_jobs(connection: Connection) -> None:
    """Answer every job until the connection closes; what a library prints goes nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for file in (1, 2):
        os.dup2(nowhere, file)
    logging.disable(logging.CRITICAL)
    _limit_memory()
    with suppress(EOFError):
        while True:
            connection.send(compared(connection.recv()))
