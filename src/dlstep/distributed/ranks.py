"""Ranks of a tensor-parallel group, and four exchanges that support compilation and CUDA graphs."""

import os
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from threading import Lock, Thread
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from .symmetric import add_up, forget, give_up, sum_by_torch

TIMEOUT = 300.0  # seconds; `EngineConfig.rank_timeout` is the option


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process's place in a group: number `rank` of `size`, and torch's name of the `group`.

    A rank waits at most `timeout` seconds for another one while both run.
    """

    rank: int = 0
    size: int = 1
    group: str = ""
    timeout: float = TIMEOUT

    @property
    def several(self) -> bool:
        """Return whether there are other ranks."""
        return self.size > 1

    def add_up(self, tensor: Tensor) -> Tensor:
        """Return the sum over all ranks, bitwise equal. Not annotated: compilers trace it."""
        if self.size == 1:
            return tensor
        return add_up(tensor, self.group) if tensor.is_cuda else sum_by_torch(tensor, self.group)

    def exchange(self, tensor: Tensor) -> list[Tensor]:
        """Return the tensors of all ranks, which have the same shape, in rank order."""
        if self.size == 1:
            return [tensor]
        functional: Any = torch.ops._c10d_functional
        flat = tensor.contiguous().view(1, -1)  # so that the first dimension is never 0
        every = functional.wait_tensor(functional.all_gather_into_tensor(flat, self.size, self.group))
        return [own.view(tensor.shape) for own in every.unbind(0)]

    def gather_objects(self, value: Any) -> list[Any]:
        """Return the picklable values of all ranks, in rank order."""
        if self.size == 1:
            return [value]
        every: list[Any] = [None] * self.size
        dist.all_gather_object(every, value)
        return every

    def first_of(self, tensor: Tensor) -> Tensor:
        """Return rank 0's tensor."""
        if self.size == 1:
            return tensor
        functional: Any = torch.ops._c10d_functional
        return functional.wait_tensor(functional.broadcast(tensor.contiguous(), 0, self.group))


ALONE = Ranks()
PARTING = 5.0  # seconds for NCCL to free its memory once no graph uses it
_aborts: list[Thread] = []  # the thread that aborts the group, if `break_off` was called
_aborting = Lock()


def join_ranks(rank: int, size: int, meeting: Path | None, timeout: float = TIMEOUT) -> Ranks:
    """Join the other ranks through the file `meeting`, or torchrun's environment if it is None.

    CPU tensors use gloo, CUDA tensors NCCL, and sums on CUDA shared device memory if possible.
    Raises ValueError if the process already has a group, and RuntimeError (also in each CPU
    exchange) after waiting `timeout` seconds for another rank.
    """
    if dist.is_initialized():
        raise ValueError(
            "tensor_parallel_size: this process already belongs to a group of ranks: close the other LLM first, or run it in "
            "another process"
        )
    os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")  # else torch exits, too
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    url = "env://" if meeting is None else f"file://{meeting}"
    try:
        dist.init_process_group(backend, init_method=url, rank=rank, world_size=size, timeout=timedelta(seconds=timeout))
    except RuntimeError:
        if dist.is_initialized():
            dist.destroy_process_group()
        dist.distributed_c10d._world.group_count = 0  # else names of later groups differ
        raise
    world: Any = dist.group.WORLD
    return Ranks(rank, size, world.group_name, timeout)


def break_off() -> None:
    """Stop all device operations that wait for other ranks: a lost rank would be awaited forever.

    NCCL stops at once, but `abort` blocks while graphs hold its operations, so a thread calls it.
    """
    give_up()
    with _aborting:
        if _aborts or not (dist.is_initialized() and torch.cuda.is_initialized()):
            return
        world: Any = dist.group.WORLD
        _aborts.append(Thread(target=world._get_backend(torch.device("cuda")).abort, name="dlstep-abort", daemon=True))
        _aborts[0].start()


def leave_ranks() -> None:
    """Leave the group of `join_ranks`. Free all graphs first, or NCCL would wait for them."""
    forget()
    with _aborting:
        while _aborts:
            abort = _aborts.pop()
            abort.join(PARTING)
            if abort.is_alive():  # graphs are left: waiting would take forever
                return
    if dist.is_initialized():
        dist.destroy_process_group()
