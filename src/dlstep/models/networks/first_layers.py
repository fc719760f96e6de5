"""Run only the first layers of a network, as many as are needed to launch all of its kernels."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from torch import nn

PLAIN = (bool, int, float, str, type(None))


class FirstLayers:
    """The first layers of each stack, as few as possible so that they include every kind of layer in the stack.

    Layers of the same kind differ only in the values of their tensors, so they launch the same kernels.
    """

    def __init__(self, network: nn.Module) -> None:
        self._stacks: list[tuple[nn.Module, nn.ModuleList, nn.ModuleList]] = []
        for module in network.modules():
            layers = getattr(module, "layers", None)
            if isinstance(layers, nn.ModuleList):
                kinds = [_kind(layer) for layer in layers]
                needed = max((kinds.index(kind) + 1 for kind in set(kinds)), default=0)
                self._stacks.append((module, layers, layers[:needed]))

    @contextmanager
    def alone(self) -> Generator[None]:
        """Make the network run only these layers inside the context. Its outputs are then meaningless."""
        try:
            for module, _, first in self._stacks:
                module.layers = first
            yield
        finally:
            for module, layers, _ in self._stacks:
                module.layers = layers


def _kind(layer: nn.Module) -> object:
    """Return all properties of a layer except its index and the values of its tensors."""
    modules: list[object] = []
    for name, module in layer.named_modules():
        facts = {key: value for key, value in vars(module).items() if isinstance(value, PLAIN) and key != "layer_idx"}
        modules.append((name, type(module), frozenset(facts.items())))
    tensors: list[Any] = [*layer.named_parameters(), *layer.named_buffers()]
    return tuple(modules), tuple((name, tuple(tensor.shape), tensor.dtype) for name, tensor in tensors)
