"""Memory that the ranks of a group, each on a device of its own, have in common, and what is added up through it."""

from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

LARGEST = 64 << 20  # bytes of a tensor
WHOLE = 4 << 20  # bytes up to which two ranks send all they have
SAVED = 1 << 20  # bytes that cross a wire in the time of the second signal: measured at NVLink of an H200
MOST = 256  # programs
ALIGNED = 256  # bytes
DTYPES = (torch.bfloat16, torch.float16, torch.float32)


@dataclass(frozen=True, slots=True)
class Commons:
    """Memory of every rank, in their order, and memory of this one: a room is for numbers, a pad for signals, zeros at first.

    `counts` of this rank alone say how many sums each program had (zeros at first, and one more that counts looks). The word
    `gone`, in memory of the host, ends all waiting once it is not 0. Every rank's device runs `programs` at a time or more.
    """

    rank: int
    rooms: tuple[Tensor, ...]
    pads: tuple[Tensor, ...]
    counts: Tensor
    gone: Tensor
    programs: int
    owner: object = None  # of the memory: these tensors only point to it

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return len(self.rooms)


def room_bytes(size: int) -> int:
    """How large a room is for `size` ranks."""
    return parts_bytes(size) + 2 * (size - 1) * whole_bytes(size)


def pad_shape(size: int) -> tuple[int, int, int]:
    """Signals of a pad, which are int64: the first or the second, of which program, from which rank."""
    return 2, MOST, size


def pad_bytes(size: int) -> int:
    """How large a pad is, with what keeps the room behind it aligned."""
    return _aligned(8 * prod(pad_shape(size)))


def suits(tensor: Tensor, size: int) -> bool:
    """Whether `add_up` takes what every rank has such a tensor of."""
    count = tensor.numel()
    return tensor.dtype in DTYPES and 0 < count * tensor.itemsize <= LARGEST and count % (16 * size) == 0


def _aligned(count: int) -> int:
    return -(-count // ALIGNED) * ALIGNED


def parts_bytes(size: int) -> int:
    """The bytes of a room that are for parts and for sums of parts, of which one's own stay at home."""
    return _aligned(2 * (size - 1) * -(-LARGEST // size))


def whole_bytes(size: int) -> int:
    """The largest tensor that goes whole: beyond it more crosses the wires than the second signal is worth."""
    more = (size - 1) * (size - 2)  # ranks - 1 times the bytes, instead of 2 (ranks - 1) / ranks times
    return _aligned(min(WHOLE, SAVED * size // more) if more else WHOLE)
