"""Run only the first layers of a network, enough to launch each of its kernels."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from torch import nn

PLAIN = (bool, int, float, str, type(None))


class FirstLayers:
    """The shortest beginning of each stack of layers that contains every kind of layer of the stack.

    Layers of one kind differ only in the values of their parameters, so they launch the same kernels.
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
        """Let the network run only these layers. Its answers are then meaningless."""
        try:
            for module, _, first in self._stacks:
                module.layers = first
            yield
        finally:
            for module, layers, _ in self._stacks:
                module.layers = layers


def _kind(layer: nn.Module) -> object:
    """Return all facts about a layer except the values of its tensors and its index."""
    modules: list[object] = []
    for name, module in layer.named_modules():
        facts = {key: value for key, value in vars(module).items() if isinstance(value, PLAIN) and key != "layer_idx"}
        modules.append((name, type(module), frozenset(facts.items())))
    tensors: list[Any] = [*layer.named_parameters(), *layer.named_buffers()]
    return tuple(modules), tuple((name, tuple(tensor.shape), tensor.dtype) for name, tensor in tensors)
