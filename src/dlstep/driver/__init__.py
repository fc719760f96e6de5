"""The torch side of a step: turn a plan into tensors, run a forward pass, copy the samples back."""

from .tables import PageTables as PageTables
from .torch_driver import TorchDriver as TorchDriver
