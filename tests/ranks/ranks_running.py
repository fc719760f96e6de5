"""Ranks as processes that talk through gloo."""

import traceback
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dlstep.models.ranks import Ranks, join_ranks, leave_ranks

LONGEST = 3000.0  # seconds for all that ranks do


def run_ranks(size: int, work: Callable[..., Any], *given: Any) -> list[Any]:
    """What `work(ranks, *given)` gives on each of `size` ranks; it must be a function of a module."""
    context = get_context("spawn")
    with TemporaryDirectory() as folder:
        pipes: list[Connection] = []
        processes = []
        for rank in range(size):
            ours, theirs = context.Pipe()
            target = (theirs, rank, size, Path(folder) / "meeting", work, given)
            process = context.Process(target=_run, args=target, daemon=True)
            process.start()
            theirs.close()
            pipes.append(ours)
            processes.append(process)
        try:
            found = [pipe.recv() if pipe.poll(LONGEST) else ("no answer", None) for pipe in pipes]
        finally:
            for process in processes:
                process.join(10)
                process.kill()
    for rank, (problem, _) in enumerate(found):
        assert problem is None, f"rank {rank}: {problem}"
    return [answer for _, answer in found]


def _run(pipe: Connection, rank: int, size: int, meeting: Path, work: Callable[..., Any], given: tuple[Any, ...]) -> None:
    import torch

    torch.set_num_threads(1)
    ranks: Ranks = join_ranks(rank, size, meeting)
    try:
        answer = None, work(ranks, *given)
    except BaseException:  # noqa: BLE001
        answer = traceback.format_exc(), None
    pipe.send(answer)
    pipe.close()
    leave_ranks()
