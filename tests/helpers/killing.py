"""Children that are killed with -9 while they write files or hold the lock of a folder."""

import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from dlstep.engine.json_lines import RunLock

SECONDS = 120  # after which a child is killed in any case


def size(paths: Iterable[Path]) -> int:
    """The bytes of files, of which some may not be there yet."""
    found = 0
    for path in paths:
        try:
            found += path.stat().st_size
        except FileNotFoundError:
            continue
    return found


def killed_while(running: Callable[[], object], paths: Iterable[Path], after: int) -> int:
    """Run in a child that is killed once these files have grown by `after` bytes; how many they have grown by."""
    paths = tuple(paths)
    begin = size(paths)
    child = os.fork()
    if not child:
        status = 1
        try:
            running()
            status = 0
        finally:
            os._exit(status)
    end = time.monotonic() + SECONDS
    while size(paths) - begin < after and time.monotonic() < end:
        if os.waitpid(child, os.WNOHANG)[0]:
            return size(paths) - begin
        time.sleep(0.0005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return size(paths) - begin


def child_that_holds(folder: Path) -> int:
    """The pid of a process that holds the lock of a folder and waits."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            lock = RunLock(folder)
            os.write(writing, b"x")
            time.sleep(600)
            lock.close()
        finally:
            os._exit(1)
    os.close(writing)
    assert os.read(reading, 1) == b"x"
    os.close(reading)
    return child


def ended(child: int) -> None:
    """Kill a child with -9."""
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
