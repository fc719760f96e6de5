"""Copy many arrays to a device with one transfer."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

_ALIGNED = 16  # bytes; kernels load words of this size
_TYPES = {np.dtype(str(kind)[6:]): kind for kind in (torch.int64, torch.int32, torch.float32, torch.float64)}


class Arena:
    """Named arrays in one buffer on the host and one on a device.

    Fill `hosts`, call `send`, read `tensors`. Do not refill `hosts` before the copy is done.
    """

    def __init__(self, sizes: Mapping[str, tuple[np.dtype, int]], device: torch.device) -> None:
        bounds: dict[str, tuple[int, int]] = {}
        total = 0
        for name, (dtype, count) in sizes.items():
            bounds[name] = total, total + count * dtype.itemsize
            total = -(-bounds[name][1] // _ALIGNED) * _ALIGNED
        self._host = torch.empty(total, dtype=torch.uint8, pin_memory=device.type == "cuda")
        self._device = torch.empty(total, dtype=torch.uint8, device=device)
        flat = self._host.numpy()
        self.hosts = {name: flat[slice(*bounds[name])].view(dtype) for name, (dtype, _) in sizes.items()}
        self.tensors = {name: self._device[slice(*bounds[name])].view(_TYPES[dtype]) for name, (dtype, _) in sizes.items()}

    def sharing(self, other: "Arena") -> "Arena":
        """Return this arena, with the memory of `other` on the device, which has arrays of the same sizes."""
        self._device, self.tensors = other._device, other.tensors
        return self

    def send(self) -> None:
        """Start an asynchronous copy of the host buffer to the device."""
        self._device.copy_(self._host, non_blocking=True)


def staged(arrays: Mapping[str, np.ndarray], device: torch.device) -> dict[str, Tensor]:
    """Return the arrays as tensors on `device`, copied in one transfer."""
    if device.type == "cpu":
        return {name: torch.from_numpy(array) for name, array in arrays.items()}
    arena = Arena({name: (array.dtype, array.size) for name, array in arrays.items()}, device)
    for name, array in arrays.items():
        arena.hosts[name][:] = array
    arena.send()
    return arena.tensors
