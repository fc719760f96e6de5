"""The console script `dlstep`. Ctrl-C ends it without a traceback, even while modules are imported."""

import os
import signal
import sys
from contextlib import suppress
from types import FrameType
from typing import NoReturn

INTERRUPTED = 128 + signal.SIGINT
SHOW_CURSOR = "\x1b[?25h"
IMPORTING = "<frozen importlib._bootstrap>"  # the file name of the code that imports modules


def main() -> int:
    """Run the command line."""
    # A shell starts background jobs with SIGINT ignored. Such a job keeps ignoring it.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupted)
    try:
        from dlstep.cli import main as run
    except KeyboardInterrupt:
        leave()
    code = run()
    if code == INTERRUPTED:
        leave()
    return code


def interrupted(signum: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, or end the process if the main thread is importing a module.

    If an exception is raised during the import of a native module, the module may replace it by another one or abort.
    """
    while frame is not None:
        if frame.f_code.co_filename == IMPORTING:
            leave()
        frame = frame.f_back
    raise KeyboardInterrupt


def leave() -> NoReturn:
    """End the process with the exit code of Ctrl-C. Do not wait for threads: a thread that imports cannot be stopped."""
    # While a bar is drawn, `sys.stderr` is the bar's and escapes control characters.
    for stream in filter(None, (sys.__stdout__, sys.__stderr__)):
        with suppress(OSError, ValueError):
            if stream.isatty():
                stream.write(SHOW_CURSOR)
            stream.flush()
    os._exit(INTERRUPTED)
