"""Minimum bytes and operations of a forward pass, from the parameters of a network and the spans of a plan."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedModel

from dlstep.core import Plan, Span
from dlstep.models.shapes import KVShape, embedding_of, head_of, kv_shapes
from dlstep_kernels.quantization import FP8

from .device import Ceilings
from .shapes import expert_stacks

UNREAD = ("vision", "multi_modal")  # parts of parameter names that text-only passes never read


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes moved and operations computed."""

    moved: float = 0.0
    flops: float = 0.0

    def __add__(self, other: "Need") -> "Need":
        return Need(self.moved + other.moved, self.flops + other.flops)


@dataclass(frozen=True, slots=True)
class Network:
    """Sizes that determine the cost of a forward pass.

    `dense`, `experts` and `head` count parameters: every row uses the dense ones, each row uses only
    its chosen experts, and only sampled rows use the head. With `mean`, sampled rows are also
    converted back to embeddings. `quantized` dense parameters are FP8, as are all experts if
    `expert_itemsize` is 1: they take one byte each, and devices multiply them twice as fast.
    """

    dense: int
    experts: int
    expert_count: int
    chosen: float
    head: int
    mean: bool
    heads: int
    layers: tuple[KVShape, ...]
    itemsize: int
    quantized: int = 0
    expert_itemsize: int = 0

    @property
    def dense_bytes(self) -> int:
        """Return the bytes of dense parameters."""
        return self.dense * self.itemsize - self.quantized * (self.itemsize - FP8.itemsize)


def network_of(network: PreTrainedModel, ranks: int = 1) -> Network:
    """Return the sizes of `network`; if several ranks share it, those of one rank."""
    head: Any = head_of(network).weight
    apart = {id(head), id(embedding_of(network).weight)}
    stacks = expert_stacks(network)
    apart |= {id(stack) for stack in stacks}
    parameters = network.named_parameters()
    dense = [
        parameter for name, parameter in parameters if id(parameter) not in apart and not any(part in name for part in UNREAD)
    ]
    text: Any = network.config.get_text_config()
    return Network(
        dense=sum(parameter.numel() for parameter in dense),
        experts=sum(stack.numel() for stack in stacks),
        expert_count=stacks[0].shape[0] if stacks else 0,
        chosen=(getattr(text, "top_k_experts", None) or text.num_experts_per_tok) / ranks if stacks else 0.0,
        head=head.numel(),
        mean=text.model_type.startswith("diffusion_gemma"),
        heads=text.num_attention_heads // ranks,
        layers=kv_shapes(network.config, ranks),
        itemsize=network.dtype.itemsize,
        quantized=sum(parameter.numel() for parameter in dense if parameter.dtype == FP8),
        expert_itemsize=stacks[0].itemsize if stacks else 0,
    )


def touched(network: Network, rows: int) -> float:
    """Return the expected share of experts that `rows` rows use if each chooses uniformly and independently."""
    return 1.0 - (1.0 - network.chosen / network.expert_count) ** rows if network.expert_count else 0.0


def need_of(network: Network, plan: Plan) -> Need:
    """Return bytes and operations of the forward passes of `plan`; spans of one mode share a pass."""
    modes = {span.rows.mode for span in plan.spans}
    return sum((_forward(network, [span for span in plan.spans if span.rows.mode == mode]) for mode in modes), start=Need())


def _forward(network: Network, spans: list[Span]) -> Need:
    rows = sum(len(span.rows.tokens) for span in spans)
    sampled = sum(len(span.wanted.sampled) for span in spans)
    moved = network.dense_bytes + network.experts * network.expert_itemsize * touched(network, rows)
    share = network.chosen / network.expert_count if network.expert_count else 0.0
    pace = 0.5 if network.expert_itemsize == FP8.itemsize else 1.0
    flops = 2.0 * rows * (network.dense - network.quantized / 2 + network.experts * share * pace)
    if sampled:
        times = 2 if network.mean else 1
        moved += times * network.head * network.itemsize
        flops += 2.0 * times * sampled * network.head
    return Need(moved, flops) + _attention(network, spans)


def _attention(network: Network, spans: Iterable[Span]) -> Need:
    """Return the cost of attention: a span reads its visible keys and values once, and each of its rows multiplies all."""
    moved = flops = 0.0
    spans = list(spans)
    for layer in network.layers:
        for span in spans:
            first = span.rows.grid.start(span.rows.start)
            seen = span.rows.end if layer.window is None else span.rows.end - max(0, first - layer.window + 1)
            moved += 2.0 * seen * layer.kv_heads * layer.head_dim * network.itemsize
            flops += 4.0 * len(span.rows.tokens) * seen * layer.kv_heads * layer.group * layer.head_dim
    return Need(moved, flops)


def least_us(network: Network, plan: Plan, ceilings: Ceilings) -> float:
    """Return the minimum time of the forward passes of `plan` in microseconds."""
    need = need_of(network, plan)
    return ceilings.least_us(need.moved, need.flops)
