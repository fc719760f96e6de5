"""`dlstep serve` for attacks: `python attacked.py OPTIONS` serves, and prints a report to stderr for each line it reads."""

import asyncio
import ctypes
import ctypes.util
import gc
import json
import sys
import time
from contextlib import suppress
from threading import Thread, current_thread, main_thread

import psutil

from dlstep.cli import main

longest, what, run = 0.0, "", asyncio.Handle._run


def measured(handle: asyncio.Handle) -> None:
    """Run a callback of the event loop and record its CPU time."""
    global longest, what
    begin = time.thread_time()
    run(handle)
    if current_thread() is main_thread() and (spent := time.thread_time() - begin) > longest:
        longest, what = spent, repr(handle)


def report() -> None:
    """Print the longest turn of the event loop since the last report, and the current memory of the process."""
    global longest, what
    process, trim = psutil.Process(), None
    with suppress(OSError, AttributeError):
        trim = ctypes.CDLL(ctypes.util.find_library("c")).malloc_trim
    for _ in sys.stdin:
        gc.collect()
        if trim is not None:
            trim(0)
        memory, blocks = process.memory_info().rss, sys.getallocatedblocks()
        found = {"stall": longest, "what": what, "memory": memory, "blocks": blocks}
        longest, what = 0.0, ""
        print(f"report: {json.dumps(found)}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    asyncio.Handle._run = measured
    Thread(target=report, daemon=True).start()
    sys.exit(main(["serve", *sys.argv[1:]]))
