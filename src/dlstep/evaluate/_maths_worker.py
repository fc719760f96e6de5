"""The process that compares mathematical answers: JSON lines in, JSON lines out. Its parent ends it when it takes too long."""

import json
import logging
import os
import sys
from importlib.util import find_spec

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

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def main() -> None:
    """Answer every line; what a library prints goes nowhere."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    logging.disable(logging.CRITICAL)
    _limit_memory()
    for line in sys.stdin:
        answers.write(json.dumps(compared(json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
