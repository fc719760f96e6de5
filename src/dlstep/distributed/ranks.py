"""Ranks of a tensor-parallel group, and the four exchanges between them: they compile, and are captured in graphs."""

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
    """This process's place in a group: number `rank` of `size`, and the name that torch knows the group by.

    A rank waits for another one for at most `timeout` seconds while both work.
    """

    rank: int = 0
    size: int = 1
    group: str = ""
    timeout: float = TIMEOUT

    @property
    def several(self) -> bool:
        """Whether there are other ranks."""
        return self.size > 1

    def add_up(self, tensor: Tensor) -> Tensor:
        """The sum over all ranks, the same bits on each. Plain tensors: a compiler traces this."""
        if self.size == 1:
            return tensor
        return add_up(tensor, self.group) if tensor.is_cuda else sum_by_torch(tensor, self.group)

    def exchange(self, tensor: Tensor) -> list[Tensor]:
        """The tensors of all ranks, which have one shape, in their order."""
        if self.size == 1:
            return [tensor]
        functional: Any = torch.ops._c10d_functional
        flat = tensor.contiguous().view(1, -1)  # so that no shape has a dimension of 0 in front
        every = functional.wait_tensor(functional.all_gather_into_tensor(flat, self.size, self.group))
        return [own.view(tensor.shape) for own in every.unbind(0)]

    def told(self, value: Any) -> list[Any]:
        """A plain value of each rank, in their order."""
        if self.size == 1:
            return [value]
        every: list[Any] = [None] * self.size
        dist.all_gather_object(every, value)
        return every

    def first_of(self, tensor: Tensor) -> Tensor:
        """The tensor of rank 0."""
        if self.size == 1:
            return tensor
        functional: Any = torch.ops._c10d_functional
        return functional.wait_tensor(functional.broadcast(tensor.contiguous(), 0, self.group))


ALONE = Ranks()
PARTING = 5.0  # seconds in which NCCL takes its memory back, once no graph needs it
_aborts: list[Thread] = []  # of the group, once it was broken off
_aborting = Lock()


def join_ranks(rank: int, size: int, meeting: Path | None, timeout: float = TIMEOUT) -> Ranks:
    """Meet the other ranks in the file `meeting`, or where the environment of torchrun says (None), and form a group.

    Tensors on a CPU go through gloo, those on CUDA devices through NCCL, sums of these through memory that the devices have in
    common, if they can. Raises ValueError in a process that has a group, and RuntimeError, here and in each exchange on a CPU,
    after `timeout` seconds of waiting for another rank.
    """
    if dist.is_initialized():
        raise ValueError(
            "tensor_parallel_size: this process belongs to a group of ranks already: close the other LLM first, or run it in "
            "another process"
        )
    os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")  # or else torch ends this process with the rank that is gone
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    place = "env://" if meeting is None else f"file://{meeting}"
    try:
        dist.init_process_group(backend, init_method=place, rank=rank, world_size=size, timeout=timedelta(seconds=timeout))
    except RuntimeError:
        if dist.is_initialized():
            dist.destroy_process_group()
        dist.distributed_c10d._world.group_count = 0  # or else the next group is named after this one, on this rank only
        raise
    world: Any = dist.group.WORLD
    return Ranks(rank, size, world.group_name, timeout)


def break_off() -> None:
    """Let nothing on a device wait for other ranks any more: one that is gone would be waited for for ever.

    NCCL lets go at once, but its call returns only when no graph holds its exchanges, so that a thread waits for that.
    """
    give_up()
    with _aborting:
        if _aborts or not (dist.is_initialized() and torch.cuda.is_initialized()):
            return
        world: Any = dist.group.WORLD
        _aborts.append(Thread(target=world._get_backend(torch.device("cuda")).abort, name="dlstep-abort", daemon=True))
        _aborts[0].start()


def leave_ranks() -> None:
    """Leave the group that `join_ranks` formed, which has to have no graphs any more: NCCL would wait for their end."""
    forget()
    with _aborting:
        while _aborts:
            abort = _aborts.pop()
            abort.join(PARTING)
            if abort.is_alive():  # graphs are left: to wait for it would be for ever
                return
    if dist.is_initialized():
        dist.destroy_process_group()
