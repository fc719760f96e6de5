"""The torch side of a step: a plan becomes tensors, one forward, one copy back."""

from .tables import PageTables as PageTables
from .torch_driver import TorchDriver as TorchDriver
