"""Sums over the ranks of a group: through memory that their devices have in common, through NCCL where there is none.

A group has it if its ranks are on one host, each on a device of its own, and the devices reach one another's memory.
"""

from dataclasses import replace
from socket import gethostname
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from dlstep_kernels.choice import has_kernels
from dlstep_kernels.commons import MOST, Commons, pad_bytes, pad_shape, room_bytes, suits

_commons: dict[str, Commons | None] = {}  # of a group, once it was asked for
_stuck: list[Commons] = []  # of devices that failed, and cannot free it
_meetings: list[str] = []  # groups that met in this process: torch counts them, and a rank that was started anew has had none


@torch.library.custom_op("dlstep::add_up", mutates_args=())
def add_up(tensor: Tensor, group: str) -> Tensor:
    """The sum over all ranks of a group, the same bits on each, of a tensor on a CUDA device.

    All ranks add up tensors of one shape and dtype in one order, each on one stream.
    """
    tensor = tensor.contiguous()
    commons = _commons_of(tensor.device, group)
    if commons is not None and suits(tensor, commons.size):
        from dlstep_kernels.gpu.add_up import add_up as by_kernel  # triton is there where memory in common is

        return by_kernel(tensor, commons)
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
    """Let no sum wait for other ranks any more: those that do end within milliseconds, and their answers mean nothing."""
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


def _commons_of(device: torch.device, group: str) -> Commons | None:
    """The memory of a group, made when it is first asked for, which all ranks do at the same forward."""
    if group not in _commons:
        if torch.cuda.is_current_stream_capturing():  # a forward was run before, but who knows
            return None
        with torch.inference_mode(False):  # tensors that any thread may write to
            _commons[group] = _made(device, group)
    return _commons[group]


def _made(device: torch.device, group: str) -> Commons | None:
    """Memory for a group; None, on all ranks, if one of them cannot have it."""
    whole = _allocated(device) if has_kernels(device) and not _meetings else None
    properties = torch.cuda.get_device_properties(device)
    kind = properties.major, properties.minor
    told: list[Any] = _told((whole is not None, gethostname(), kind, device.index, properties.multi_processor_count))
    allocated, hosts, kinds, devices, programs = zip(*told, strict=True)
    alike = len(set(hosts)) == 1 and len(set(kinds)) == 1 and len(set(devices)) == len(devices)
    every = _told(all(allocated) and alike and _reach_one_another(devices))
    if whole is None or not all(every):
        return None
    _meetings.append(group)
    try:
        commons = _met(whole, group)
    except RuntimeError:  # the devices cannot share memory
        commons = None
    every = _told(commons is not None)
    return replace(commons, programs=min(programs)) if commons is not None and all(every) else None


def _reach_one_another(devices: tuple[int, ...]) -> bool:
    """Whether each of these devices reads and writes the others' memory, as far as this process sees them."""
    if max(devices) >= torch.cuda.device_count():
        return False
    return all(torch.cuda.can_device_access_peer(one, other) for one in devices for other in devices if one != other)


def _allocated(device: torch.device) -> Tensor | None:
    """A pad of zeros and a room, which others can be given access to; None if there is no room for them."""
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
    """Pads and rooms in the memory that all ranks allocated. Raises RuntimeError if a device cannot reach it."""
    from torch.distributed import _symmetric_memory as symmetric

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
