"""Dispatch a function to its Triton kernel if the device supports it, else to its PyTorch twin.

The twins define the results. Kernels are imported on first use, so that PyTorch alone is enough.
"""

from collections.abc import Callable
from functools import cache, update_wrapper
from importlib import import_module
from importlib.util import find_spec
from typing import Generic, ParamSpec, TypeVar

import torch
from torch import Tensor

P = ParamSpec("P")
R = TypeVar("R")


@cache
def has_kernels(device: torch.device) -> bool:
    """Return whether a device runs kernels: CUDA, compute capability 8.0 or above, with triton.

    Args:
        device: A device of torch.
    """
    return device.type == "cuda" and find_spec("triton") is not None and torch.cuda.get_device_capability(device) >= (8, 0)


class Twinned(Generic[P, R]):
    """A function that calls its kernel if the device has one and `suits` accepts, else its twin."""

    def __init__(self, twin: Callable[P, R], module: str, suits: Callable[..., bool] | None) -> None:
        self.twin, self._module, self._suits = twin, module, suits
        update_wrapper(self, twin)

    @property
    def kernel(self) -> Callable[P, R]:
        """Return the kernel: the function with the twin's name in a module of `gpu`."""
        return getattr(import_module(f".gpu.{self._module}", __package__), self.twin.__name__)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the kernel or the twin, by the device of the first argument, a tensor."""
        first = args[0]
        assert isinstance(first, Tensor), "the first argument is a tensor"
        if has_kernels(first.device) and (self._suits is None or self._suits(*args, **kwargs)):
            return self.kernel(*args, **kwargs)
        return self.twin(*args, **kwargs)


def with_kernel(module: str, suits: Callable[..., bool] | None = None) -> Callable[[Callable[P, R]], Twinned[P, R]]:
    """Decorate a twin with its kernel in `gpu.<module>`, used for what `suits` accepts."""
    return lambda twin: Twinned(twin, module, suits)
