"""Device memory that the ranks of a group share, one device each, and the layout of sums in it."""

from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

LARGEST = 64 << 20  # maximum bytes of a tensor
WHOLE = 4 << 20  # bytes up to which two ranks send whole tensors
SAVED = 1 << 20  # bytes sent in the time of the second signal; measured with NVLink of an H200
MOST = 256  # maximum number of programs
ALIGNED = 256  # bytes
DTYPES = (torch.bfloat16, torch.float16, torch.float32)


@dataclass(frozen=True, slots=True)
class Commons:
    """Memory of all ranks, in rank order: rooms hold numbers, pads hold signals (initially zero).

    `counts`, local to this rank, has the number of sums of each program, and one counter of polls.
    A nonzero `gone`, in host memory, ends all waiting. Each device can run `programs` concurrently.
    """

    rank: int
    rooms: tuple[Tensor, ...]
    pads: tuple[Tensor, ...]
    counts: Tensor
    gone: Tensor
    programs: int
    owner: object = None  # keeps the memory alive, to which these tensors only point

    @property
    def size(self) -> int:
        """Return the number of ranks."""
        return len(self.rooms)


def room_bytes(size: int) -> int:
    """Return the bytes of a room for `size` ranks."""
    return parts_bytes(size) + 2 * (size - 1) * whole_bytes(size)


def pad_shape(size: int) -> tuple[int, int, int]:
    """Return the shape of a pad's int64 signals: first or second, program, sending rank."""
    return 2, MOST, size


def pad_bytes(size: int) -> int:
    """Return the bytes of a pad, aligned for the room that follows."""
    return _aligned(8 * prod(pad_shape(size)))


def suits(tensor: Tensor, size: int) -> bool:
    """Return whether `add_up` supports a sum of tensors like this one on `size` ranks."""
    count = tensor.numel()
    return tensor.dtype in DTYPES and 0 < count * tensor.itemsize <= LARGEST and count % (16 * size) == 0


def _aligned(count: int) -> int:
    return -(-count // ALIGNED) * ALIGNED


def parts_bytes(size: int) -> int:
    """Return the bytes in a room for parts and sums of parts of the other ranks."""
    return _aligned(2 * (size - 1) * -(-LARGEST // size))


def whole_bytes(size: int) -> int:
    """Return the bytes up to which tensors are sent whole: beyond, transfers outweigh a signal."""
    more = (size - 1) * (size - 2)  # excess bytes sent, times size / bytes
    return _aligned(min(WHOLE, SAVED * size // more) if more else WHOLE)
