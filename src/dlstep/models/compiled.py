"""Layers compiled by torch: what lies between products of matrices and attention is fused into few kernels."""

import os
from collections.abc import Callable
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any
from warnings import catch_warnings, simplefilter

import torch
import torch._dynamo  # pyright: ignore[reportMissingTypeStubs]
import torch.fx.experimental._config
from torch import fx, nn
from torch._dynamo.backends.registry import lookup_backend  # pyright: ignore[reportMissingTypeStubs]
from transformers import PreTrainedModel

from .merged import merge_products

Backend = str | Callable[..., Any]
MOST_VERSIONS = 64  # of one function: sizes of every network of a process count
_prepared: ContextVar[bool] = ContextVar("prepared", default=False)  # whether this thread has the settings of `_prepare`


def compile_layers(network: PreTrainedModel, *, backend: Backend = "inductor") -> None:
    """Let every layer of `network` be compiled when it first runs; layers of one kind share the result, for any number of
    rows (a single one is compiled for itself). Products of the same rows are merged into one. `backend` is what
    torch.compile takes. Results are kept between starts in a folder of the user's, unless TORCHINDUCTOR_CACHE_DIR is set.
    """
    # By default results lie where machines keep what may be lost when they start again.
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(Path.home() / ".cache" / "dlstep" / "compiled"))
    merge_products(network)
    for layer in network.modules():
        if hasattr(layer, "self_attn"):
            layer.__class__ = _compiled(type(layer), backend)


@cache  # Layers share what one and the same backend has compiled.
def _merging(backend: Backend) -> Callable[..., Any]:
    """This backend, for graphs in which slices of one product are computed from one."""
    compile_graph: Any = lookup_backend(backend)

    def compile_merged(graph: fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        with catch_warnings():
            simplefilter("ignore", UserWarning)  # advice to whoever wrote the layers
            return compile_graph(equals_once(graph), inputs)

    return compile_merged


@cache  # a class for all networks, or else each would be compiled for itself
def _compiled(kind: type[nn.Module], backend: Backend) -> type[nn.Module]:
    """`kind` with its forward compiled for any number of rows at once: bits must not depend on which number was met first.

    Not a forward of the layer's own: it would hold the layer, and its weights, until garbage is collected.
    """
    compiled: Callable[..., Any] = torch.compile(kind.forward, dynamic=True, backend=_merging(backend))

    def forward(layer: nn.Module, *given: Any, **named: Any) -> Any:
        if not _prepared.get():
            _prepare()
        # Keys and values are in pages; a cache would be looked at by layer, and each layer compiled for itself.
        named["past_key_values"] = None
        return compiled(layer, *given, **named)

    return type(kind.__name__, (kind,), {"forward": forward, "__module__": kind.__module__})


def _prepare() -> None:
    """Change the settings of torch that layers are compiled with; it keeps them for each thread apart."""
    dynamo: Any = torch._dynamo.config
    # Beyond the limit layers would run as they are, and round differently from one step to the next.
    dynamo.recompile_limit = max(dynamo.recompile_limit, MOST_VERSIONS)
    shapes: Any = torch.fx.experimental._config
    # That there are as many rows as something else is chance.
    shapes.use_duck_shape = False
    _prepared.set(True)


def equals_once(graph: fx.GraphModule) -> fx.GraphModule:
    """`graph` without products that it holds already."""
    products: dict[Any, fx.Node] = {}
    for node in graph.graph.nodes:
        if node.target is nn.functional.linear:
            product = products.setdefault((node.args, *sorted(node.kwargs.items())), node)
            if product is not node:
                node.replace_all_uses_with(product)
                graph.graph.erase_node(node)
    graph.recompile()
    return graph
