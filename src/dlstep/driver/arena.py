"""Copy many arrays to a device with one transfer."""

from collections import deque
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

_ALIGNED = 16  # bytes; kernels load words of this size
_TYPES = {np.dtype(np.int64): torch.int64, np.dtype(np.int32): torch.int32, np.dtype(np.float32): torch.float32}


class Arena:
    """Named arrays in one buffer on a device, and in `copies` buffers on the host, of which one is current.

    Fill `hosts`, call `send`, read `tensors`. Do not refill `hosts` before the copy is done.
    """

    def __init__(self, sizes: Mapping[str, tuple[np.dtype, int]], device: torch.device, copies: int = 1) -> None:
        bounds: dict[str, tuple[int, int]] = {}
        total = 0
        for name, (dtype, count) in sizes.items():
            bounds[name] = total, total + count * dtype.itemsize
            total = -(-bounds[name][1] // _ALIGNED) * _ALIGNED
        pinned = device.type == "cuda"
        self._buffers = deque([torch.empty(total, dtype=torch.uint8, pin_memory=pinned) for _ in range(copies)])
        self._device = torch.empty(total, dtype=torch.uint8, device=device)
        flat = [buffer.numpy() for buffer in self._buffers]
        self._hosts = deque(
            [{name: each[slice(*bounds[name])].view(dtype) for name, (dtype, _) in sizes.items()} for each in flat]
        )
        self.tensors = {name: self._device[slice(*bounds[name])].view(_TYPES[dtype]) for name, (dtype, _) in sizes.items()}

    @property
    def hosts(self) -> dict[str, np.ndarray]:
        """The arrays of the current buffer on the host."""
        return self._hosts[0]

    def turn(self) -> None:
        """Make the next buffer on the host the current one."""
        self._buffers.rotate()
        self._hosts.rotate()

    def send(self) -> None:
        """Start an asynchronous copy of the current buffer to the device."""
        self._device.copy_(self._buffers[0], non_blocking=True)


def staged(arrays: Mapping[str, np.ndarray], device: torch.device) -> dict[str, Tensor]:
    """Return the arrays as tensors on `device`, copied in one transfer."""
    if device.type == "cpu":
        return {name: torch.from_numpy(array) for name, array in arrays.items()}
    arena = Arena({name: (array.dtype, array.size) for name, array in arrays.items()}, device)
    for name, array in arrays.items():
        arena.hosts[name][:] = array
    arena.send()
    return arena.tensors
