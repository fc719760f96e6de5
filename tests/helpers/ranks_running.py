"""Ranks as processes of a group, and processes apart from one another."""

import faulthandler
import traceback
from collections.abc import Callable
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

from dlstep.distributed.ranks import ALONE, Ranks, join_ranks, leave_ranks

LONGEST = 3000.0  # seconds for all that ranks do
Job = tuple[int, int, Path | None, Callable[..., Any], tuple[Any, ...]]
IMPORTED = [
    "dlstep.engine.loader",
    "dlstep.distributed.rank_zero",
    "dlstep.models",
    "dlstep.driver",
]  # once for all ranks, which takes longest


def run_ranks(
    size: int, work: Callable[..., Any], *given: Any, seconds: float = LONGEST, method: str = "forkserver"
) -> list[Any]:
    """The answer of `work(ranks, *given)` on each of `size` ranks; it must be a function of a module."""
    with TemporaryDirectory() as folder:
        return _answers([(rank, size, Path(folder) / "meeting", work, given) for rank in range(size)], method, seconds)


run_on_devices = partial(run_ranks, method="spawn")  # with processes that share nothing, as CUDA needs it


def run_apart(works: list[tuple[Callable[..., Any], tuple[Any, ...]]], seconds: float = LONGEST) -> list[Any]:
    """The answer of each `work(ALONE, *given)`, in processes that run at the same time."""
    return _answers([(0, 1, None, work, given) for work, given in works], "spawn", seconds)


def prepared() -> Any:
    """A context whose processes start with torch and dlstep imported."""
    context: Any = get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    return context


def _answers(jobs: list[Job], method: str, seconds: float) -> list[Any]:
    context = prepared() if method == "forkserver" else get_context(method)
    pipes: list[Connection] = []
    processes = []
    for job in jobs:
        ours, theirs = context.Pipe()
        process = context.Process(target=_run, args=(theirs, *job), daemon=True)
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    end = monotonic() + seconds
    try:
        found = [_told(pipe, end) for pipe in pipes]
    finally:
        for process in processes:
            process.join(10 if monotonic() < end else 0)
            process.kill()
    for rank, (problem, _) in enumerate(found):
        assert problem is None, f"process {rank}: {problem}"
    return [answer for _, answer in found]


def _told(pipe: Connection, end: float) -> tuple[str | None, Any]:
    try:
        return pipe.recv() if pipe.poll(max(0.0, end - monotonic())) else ("no answer in time", None)
    except EOFError:
        return "it ended without an answer", None


def _run(
    pipe: Connection, rank: int, size: int, meeting: Path | None, work: Callable[..., Any], given: tuple[Any, ...]
) -> None:
    import torch

    faulthandler.enable()  # a process that a signal ends prints its stacks
    torch.set_num_threads(1)
    ranks: Ranks = ALONE if meeting is None else join_ranks(rank, size, meeting)
    try:
        answer = None, work(ranks, *given)
    except BaseException:  # noqa: BLE001
        answer = traceback.format_exc(), None
    pipe.send(answer)
    pipe.close()
    leave_ranks()
