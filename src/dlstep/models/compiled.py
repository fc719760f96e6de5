"""Compile layers by torch: fuse the operations between matrix products and attention.

Linear layers with the same input are first merged into one layer, so that one product replaces several. With few rows, a
device spends its time reading weights, and reads them faster in larger pieces. Each merged layer becomes a slice of the
whole layer. When compiled, the slices share one product; otherwise, each slice multiplies by its own part of the weight.
"""

import os
from collections.abc import Callable
from contextvars import ContextVar
from functools import cache
from inspect import unwrap
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any
from warnings import catch_warnings, simplefilter

import torch
import torch._dynamo  # pyright: ignore[reportMissingTypeStubs]
import torch.fx.experimental._config
from torch import Tensor, fx, nn
from torch._dynamo.backends.registry import lookup_backend  # pyright: ignore[reportMissingTypeStubs]
from transformers import PreTrainedModel

from dlstep_kernels import scaled_linear

from .quantization import QuantizedLinear, as_quantized
from .transformers_internals import cache_argument

Backend = str | Callable[..., Any]
TOGETHER = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))  # layers with the same input
MOST_VERSIONS = 64  # compiled versions of one function, over all networks of a process
torch.compiler.allow_in_graph(scaled_linear)  # one node of a graph, so that `equals_once` can compare it
_prepared: ContextVar[bool] = ContextVar("prepared", default=False)  # whether this thread has the settings of `_prepare`


def compile_layers(network: PreTrainedModel, *, backend: Backend = "inductor") -> None:
    """Compile every layer of `network` on its first run, and merge products of the same rows.

    Layers of one class share the result, for any number of rows (a single row is compiled
    separately). `backend` is torch.compile's. TORCHINDUCTOR_CACHE_DIR defaults to ~/.cache/dlstep.
    """
    # torch's default is a temporary folder, which a reboot may delete.
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(Path.home() / ".cache" / "dlstep" / "compiled"))
    merge_products(network)
    for layer in network.modules():
        if hasattr(layer, "self_attn"):
            layer.__class__ = _compiled(type(layer), backend)


@cache  # Layers share compiled code only if the backend is the same object.
def _merging(backend: Backend) -> Callable[..., Any]:
    """Return the backend, extended to compute slices of one product from a single product."""
    compile_graph: Any = lookup_backend(backend)

    def compile_merged(graph: fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        with catch_warnings():
            simplefilter("ignore", UserWarning)  # advice to the author of the layers
            return compile_graph(equals_once(graph), inputs)

    return compile_merged


@cache  # one class for all networks, or each would be compiled separately
def _compiled(kind: type[nn.Module], backend: Backend) -> type[nn.Module]:
    """Return a subclass of `kind` with compiled forward, for any number of rows.

    The code must be dynamic from the start: bits must not depend on the first number of rows. It
    compiles the class's forward, since a bound method would hold the layer's weights.
    """
    # Unwrap: all functions that a decorator wraps share one code object, and thus one limit on compiled versions.
    compiled: Callable[..., Any] = torch.compile(unwrap(kind.forward), dynamic=True, backend=_merging(backend))
    cache_name = cache_argument(kind)

    def forward(layer: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if not _prepared.get():
            _prepare()
        # Keys and values are in pages. torch would specialise on a cache object for each layer.
        kwargs[cache_name] = None
        return compiled(layer, *args, **kwargs)

    return type(kind.__name__, (kind,), {"forward": forward, "__module__": kind.__module__})


def _prepare() -> None:
    """Change torch's compile settings, which are per thread."""
    dynamo: Any = torch._dynamo.config
    # Beyond the limit, layers would run uncompiled and round differently between steps.
    dynamo.recompile_limit = max(dynamo.recompile_limit, MOST_VERSIONS)
    shapes: Any = torch.fx.experimental._config
    # Equal sizes are a coincidence: do not specialise on them.
    shapes.use_duck_shape = False
    _prepared.set(True)


def equals_once(graph: fx.GraphModule) -> fx.GraphModule:
    """Remove products from `graph` that it already contains."""
    products: dict[Any, fx.Node] = {}
    for node in graph.graph.nodes:
        if node.target in (nn.functional.linear, scaled_linear):
            product = products.setdefault((node.args, *sorted(node.kwargs.items())), node)
            if product is not node:
                node.replace_all_uses_with(product)
                graph.graph.erase_node(node)
    graph.recompile()
    return graph


class Slice(nn.Module):
    """Outputs `start` to `stop` of a linear layer.

    Annotated with plain tensors, because compilers cannot trace shape checks.
    """

    def __init__(self, whole: nn.Linear, start: int, stop: int) -> None:
        super().__init__()
        self.whole = whole
        self.start, self.stop = start, stop

    def forward(self, rows: Tensor) -> Tensor:
        """Return this slice of the product with rows [..., in_features]: [..., stop - start]."""
        part = slice(self.start, self.stop)
        if torch.compiler.is_compiling() or isinstance(self.whole, QuantizedLinear):
            return self.whole(rows)[..., part]
        return nn.functional.linear(rows, self.whole.weight[part], None if self.whole.bias is None else self.whole.bias[part])


def merge_products(network: PreTrainedModel) -> None:
    """Merge layers with the same input. Tied weights stay tied; layers with an adapter are skipped."""
    owners: dict[tuple[int, ...], list[tuple[nn.Module, dict[str, nn.Linear]]]] = {}
    for module in network.modules():
        for names in TOGETHER:
            linear = {name: part for name in names if isinstance(part := getattr(module, name, None), nn.Linear)}
            parts = {name: part for name, part in linear.items() if type(part) in (nn.Linear, QuantizedLinear)}
            if len(parts) > 1 and len({(type(part), part.in_features, part.bias is None) for part in parts.values()}) == 1:
                owners.setdefault(tuple(id(part.weight) for part in parts.values()), []).append((module, parts))
    for key in list(owners):  # one by one, so that only one weight at a time exists twice
        _put(_whole(list(owners[key][0][1].values())), owners.pop(key))


def _put(whole: nn.Linear, owners: list[tuple[nn.Module, dict[str, nn.Linear]]]) -> None:
    """Replace the parts in all owners with slices of the whole layer."""
    for module, parts in owners:
        bounds = pairwise(accumulate((part.out_features for part in parts.values()), initial=0))
        for name, (start, stop) in zip(parts, bounds, strict=True):
            setattr(module, name, Slice(whole, start, stop))


@torch.no_grad()
def _whole(parts: list[nn.Linear]) -> nn.Linear:
    """Return one layer with the concatenated outputs of the parts."""
    first = parts[0]
    whole = nn.Linear(first.in_features, sum(part.out_features for part in parts), bias=first.bias is not None, device="meta")
    whole.weight = nn.Parameter(torch.cat([part.weight for part in parts]), requires_grad=False)
    if first.bias is not None:
        whole.bias = nn.Parameter(torch.cat([part.bias for part in parts]), requires_grad=False)
    if all(isinstance(part, QuantizedLinear) for part in parts):
        as_quantized(whole, torch.cat([part.scales for part in parts if isinstance(part, QuantizedLinear)]))
    return whole
