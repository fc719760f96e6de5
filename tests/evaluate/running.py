"""Runs of an evaluation, whole and killed."""

import os
import signal
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

from dlstep import LLM
from dlstep.engine import Engine
from dlstep.evaluate.crews import Alone, Crew
from dlstep.evaluate.items import read_documents
from dlstep.evaluate.options import EvalOptions
from dlstep.evaluate.runner import evaluate

LEFT = ("ahead.jsonl",)  # files that only a run under way has


@cache
def engine() -> Engine:
    """A model that takes few requests at a time, so that answers end out of order."""
    return LLM("tiny-bd", max_num_reqs=6).engine


def run(options: EvalOptions, crew: Crew | None = None) -> Path:
    """A run to its end, or what is left of it; its folder."""
    evaluate(crew or Alone(engine()), options, read_documents(options))
    return Path(options.out)


def answers(folder: Path) -> bytes:
    """The file of answers."""
    return (folder / "answers.jsonl").read_bytes()


def killed(options: EvalOptions, after: int) -> int:
    """Run in a child that is killed with -9 once its files have grown by `after` bytes; how many they have grown by."""
    return killed_while(lambda: run(options), Path(options.out), after)


def killed_while(running: Callable[[], object], folder: Path, after: int) -> int:
    """The same with anything that writes answers into a folder."""
    engine()  # loaded once, for all children
    begin = size(folder)
    child = os.fork()
    if not child:
        status = 1
        try:
            running()
            status = 0
        finally:
            os._exit(status)
    end = time.monotonic() + 120
    while size(folder) - begin < after and time.monotonic() < end:
        if os.waitpid(child, os.WNOHANG)[0]:
            return size(folder) - begin
        time.sleep(0.0005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return size(folder) - begin


def size(folder: Path) -> int:
    """Bytes of the files that answers are written to."""
    return sum(path.stat().st_size for name in ("answers.jsonl", *LEFT) if (path := folder / name).exists())
