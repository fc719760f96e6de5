"""Sums over the ranks of a group: through memory that their devices have in common, through NCCL where there is none.

A group has it if its ranks are on one host, each on a device of its own, and the devices reach one another's memory.
"""

from dataclasses import replace
from socket import gethostname
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from dlstep_kernels.choice import has_kernels

if TYPE_CHECKING:
    from dlstep_kernels.gpu.add_up import Commons

_commons: dict[str, "Commons | None"] = {}  # of a group, once it was asked for
_stuck: list["Commons"] = []  # what a device that failed cannot free


@torch.library.custom_op("dlstep::add_up", mutates_args=())
def add_up(tensor: Tensor, group: str) -> Tensor:
    """The sum over all ranks of a group, the same bits on each, of a tensor on a CUDA device.

    All ranks add up tensors of one shape and dtype in one order, each on one stream.
    """
    tensor = tensor.contiguous()
    commons = _commons_of(tensor.device, group)
    if commons is not None:
        from dlstep_kernels.gpu import add_up as kernel

        if kernel.suits(tensor, commons.size):
            return kernel.add_up(tensor, commons)
    return sum_by_torch(tensor, group)


@add_up.register_fake
def _(tensor: Tensor, group: str) -> Tensor:
    del group
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


def sum_by_torch(tensor: Tensor, group: str) -> Tensor:
    """The same of a tensor on any device, by the library that the group has for it."""
    functional: Any = torch.ops._c10d_functional
    return functional.wait_tensor(functional.all_reduce(tensor.contiguous(), "sum", group))


def give_up() -> None:
    """Let no sum wait for other ranks any more: what waits ends within milliseconds, and its answer means nothing."""
    for commons in list(_commons.values()):
        if commons is not None:
            commons.gone.fill_(1)


def forget() -> None:
    """Free the memory of all groups; sums that still wait are given up."""
    give_up()
    while _commons:
        _, commons = _commons.popitem()
        if commons is not None:
            try:
                torch.cuda.synchronize(commons.counts.device)
            except RuntimeError:  # to free it would end the process
                _stuck.append(commons)


def _commons_of(device: torch.device, group: str) -> "Commons | None":
    """The memory of a group, made when it is first asked for, which all ranks do at the same forward."""
    if group not in _commons:
        if torch.cuda.is_current_stream_capturing():  # a forward was run before, but who knows
            return None
        with torch.inference_mode(False):  # tensors that any thread may write to
            _commons[group] = _made(device, group)
    return _commons[group]


def _made(device: torch.device, group: str) -> "Commons | None":
    """Memory for a group; None, on all ranks, if one of them cannot have it."""
    whole = _allocated(device) if has_kernels(device) else None
    processors = torch.cuda.get_device_properties(device).multi_processor_count
    told: list[Any] = _told((gethostname(), device.index, whole is not None, processors))
    hosts, devices, allocated, programs = zip(*told, strict=True)
    reached = all(torch.cuda.can_device_access_peer(one, other) for one in devices for other in devices if one != other)
    if whole is None or not all(allocated) or len(set(hosts)) > 1 or len(set(devices)) < len(devices) or not reached:
        return None
    try:
        commons = _met(whole, group)
    except RuntimeError:  # the devices cannot share memory
        commons = None
    if None in _told(commons and commons.rank):
        return None
    assert commons is not None, "this rank has told that it is there"
    return replace(commons, programs=min(programs))


def _allocated(device: torch.device) -> Tensor | None:
    """A pad of zeros and a room, which others can be given access to; None if there is no room for them."""
    from torch.distributed import _symmetric_memory as symmetric

    from dlstep_kernels.gpu.add_up import pad_bytes, room_bytes

    size = dist.get_world_size()
    try:
        whole = symmetric.empty(pad_bytes(size) + room_bytes(size), dtype=torch.uint8, device=device)
        whole[: pad_bytes(size)].zero_()
        torch.cuda.synchronize(device)
    except RuntimeError:
        return None
    return whole


def _met(whole: Tensor, group: str) -> "Commons":
    """What lies in the memory that all ranks allocated. Raises RuntimeError if a device cannot reach it."""
    from torch.distributed import _symmetric_memory as symmetric

    from dlstep_kernels.gpu.add_up import MOST, Commons, pad_bytes, pad_shape, room_bytes

    handle: Any = symmetric.rendezvous(whole, group)  # pyright: ignore[reportArgumentType]
    size = handle.world_size
    pads = tuple([handle.get_buffer(rank, pad_shape(size), torch.int64, 0) for rank in range(size)])
    rooms = tuple([handle.get_buffer(rank, (room_bytes(size),), torch.uint8, pad_bytes(size)) for rank in range(size)])
    counts = torch.zeros(MOST + 1, dtype=torch.int64, device=whole.device)
    gone = torch.zeros(1, dtype=torch.int32, pin_memory=True)
    return Commons(handle.rank, rooms, pads, counts, gone, 0, (whole, handle))


def _told(value: Any) -> list[Any]:
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, value)
    return every
