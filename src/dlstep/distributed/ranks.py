"""Ranks of a tensor-parallel group, and four exchanges that support compilation and CUDA graphs.

Sums go through shared device memory, or through NCCL if there is none. Shared memory needs all ranks
on one host, each on its own device, with peer access between devices.
"""

import os
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from socket import gethostname
from threading import Lock, Thread
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from dlstep_kernels import has_kernels
from dlstep_kernels.commons import MOST, Commons, pad_bytes, pad_shape, room_bytes, suits

functional: Any = torch.ops._c10d_functional
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
        flat = tensor.contiguous().view(1, -1)  # so that the first dimension is never 0
        every = functional.wait_tensor(functional.all_gather_into_tensor(flat, self.size, self.group))
        return [own.view(tensor.shape) for own in every.unbind(0)]

    def gather_objects(self, value: Any) -> list[Any]:
        """Return the picklable values of all ranks, in rank order."""
        return [value] if self.size == 1 else gather_objects(value)

    def first_of(self, tensor: Tensor) -> Tensor:
        """Return rank 0's tensor."""
        if self.size == 1:
            return tensor
        return functional.wait_tensor(functional.broadcast(tensor.contiguous(), 0, self.group))


def gather_objects(value: Any) -> list[Any]:
    """Return the picklable values of all ranks of this process's group, in rank order."""
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, value)
    return every


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
            "tensor_parallel_size: this process already belongs to a group of ranks: delete the other LLM first, or run it in "
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


_commons: dict[str, Commons | None] = {}  # by group, once requested
_stuck: list[Commons] = []  # memory of failed devices, which cannot free it
_meetings: list[str] = []  # groups so far: torch counts them, so a restarted rank differs


@torch.library.custom_op("dlstep::add_up", mutates_args=())
def add_up(tensor: Tensor, group: str) -> Tensor:
    """Return the sum of a CUDA tensor over all ranks of a group, bitwise equal on each.

    All ranks must sum the same shapes and dtypes in the same order, each on one stream.
    """
    tensor = tensor.contiguous()
    commons = _commons_of(tensor.device, group)
    if commons is not None and suits(tensor, commons.size):
        from dlstep_kernels.gpu.add_up import add_up as by_kernel  # triton is installed here

        return by_kernel(tensor, commons)
    return sum_by_torch(tensor, group)


@add_up.register_fake
def _(tensor: Tensor, group: str) -> Tensor:
    del group
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


def sum_by_torch(tensor: Tensor, group: str) -> Tensor:
    """Return the sum of a tensor on any device over the ranks, by the group's backend."""
    return functional.wait_tensor(functional.all_reduce(tensor.contiguous(), "sum", group))


def give_up() -> None:
    """Make all waiting sums end within milliseconds, with meaningless results."""
    for commons in list(_commons.values()):
        if commons is not None:
            commons.gone.fill_(1)


def forget() -> None:
    """Free the shared memory of all groups, after giving up sums that still wait."""
    give_up()
    while _commons:
        _, commons = _commons.popitem()
        if commons is not None:
            try:
                torch.cuda.synchronize(commons.counts.device)
            except RuntimeError:  # freeing the memory would crash the process
                _stuck.append(commons)


def _commons_of(device: torch.device, group: str) -> Commons | None:
    """Return a group's memory, allocated on first use, in the same forward pass on all ranks."""
    if group not in _commons:
        if torch.cuda.is_current_stream_capturing():  # never allocate in a capture
            return None
        with torch.inference_mode(False):  # so that threads in any mode may write to it
            _commons[group] = _create(device, group)
    return _commons[group]


def _create(device: torch.device, group: str) -> Commons | None:
    """Return memory for a group, or None on all ranks if any rank cannot have it."""
    whole = _allocated(device) if has_kernels(device) and not _meetings else None
    properties = torch.cuda.get_device_properties(device)
    kind = properties.major, properties.minor
    facts: list[Any] = gather_objects((whole is not None, gethostname(), kind, device.index, properties.multi_processor_count))
    allocated, hosts, kinds, devices, programs = zip(*facts, strict=True)
    alike = len(set(hosts)) == 1 and len(set(kinds)) == 1 and len(set(devices)) == len(devices)
    every = gather_objects(all(allocated) and alike and _reach_one_another(devices))
    if whole is None or not all(every):
        return None
    _meetings.append(group)
    try:
        commons = _met(whole, group)
    except RuntimeError:  # the devices cannot share memory
        commons = None
    every = gather_objects(commons is not None)
    return replace(commons, programs=min(programs)) if commons is not None and all(every) else None


def _reach_one_another(devices: tuple[int, ...]) -> bool:
    """Return whether all these devices can access each other's memory, as seen by this process."""
    if max(devices) >= torch.cuda.device_count():
        return False
    return all(torch.cuda.can_device_access_peer(one, other) for one in devices for other in devices if one != other)


def _allocated(device: torch.device) -> Tensor | None:
    """Return shareable memory for a zeroed pad and a room; None if it does not fit."""
    from torch.distributed import _symmetric_memory as symmetric

    size = dist.get_world_size()
    try:
        whole = symmetric.empty(pad_bytes(size) + room_bytes(size), dtype=torch.uint8, device=device)
        whole[: pad_bytes(size)].zero_()
        torch.cuda.synchronize(device)
    except RuntimeError:
        return None
    return whole


def _met(whole: Tensor, group: str) -> Commons:
    """Map the memory of all ranks. Raises RuntimeError if a device cannot reach it."""
    from torch.distributed import _symmetric_memory as symmetric

    handle: Any = symmetric.rendezvous(whole, group)  # pyright: ignore[reportArgumentType]
    size = handle.world_size
    pads = tuple(handle.get_buffer(rank, pad_shape(size), torch.int64, 0) for rank in range(size))
    rooms = tuple(handle.get_buffer(rank, (room_bytes(size),), torch.uint8, pad_bytes(size)) for rank in range(size))
    counts = torch.zeros(MOST + 1, dtype=torch.int64, device=whole.device)
    gone = torch.zeros(1, dtype=torch.int32, pin_memory=True)
    return Commons(handle.rank, rooms, pads, counts, gone, 0, (whole, handle))
