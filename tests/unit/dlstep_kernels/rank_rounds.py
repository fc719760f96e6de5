"""Ranks as threads of one process, which exchange tensors; one runs at a time, for triton's interpreter knows of one only."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, BrokenBarrierError, Lock
from typing import Any

import numpy as np
from torch import Tensor

from dlstep_kernels.vocabulary import Exchange

PATIENCE = 100.0  # seconds


def all_ranks(size: int, work: Callable[[int, Exchange], Any]) -> list[Any]:
    """The answers of `work(rank, exchange)` on every rank."""
    turn, met, given = Lock(), Barrier(size, timeout=PATIENCE), {}

    def run(rank: int) -> Any:
        def exchange(tensor: Tensor) -> list[Tensor]:
            given[rank] = tensor
            turn.release()
            try:
                met.wait()
                every = [given[other] for other in range(size)]
                met.wait()
            finally:
                turn.acquire()
            assert len({one.shape for one in every}) == 1, "ranks exchange tensors of different shapes"
            return every

        with turn, np.errstate(all="ignore"):  # which every thread has for itself
            try:
                return work(rank, exchange)
            except BaseException:
                met.abort()  # nobody waits for this rank
                raise

    with ThreadPoolExecutor(size) as threads:
        running = [threads.submit(run, rank) for rank in range(size)]
    errors = [error for each in running if (error := each.exception()) is not None]
    for error in sorted(errors, key=lambda error: isinstance(error, BrokenBarrierError)):
        raise error  # the first one that is no consequence of another
    return [each.result() for each in running]
