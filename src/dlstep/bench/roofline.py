"""The bytes and operations that a forward cannot do without, counted from a network's parameters and a plan's spans."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedModel

from ..core import Plan, Span
from ..models.shapes import KVShape, embedding_of, head_of, kv_shapes
from .ceilings import Ceilings
from .shapes import expert_stacks

UNREAD = ("vision", "multi_modal")  # parts of names of what no forward over text reads


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes that are moved and operations that are done."""

    moved: float = 0.0
    flops: float = 0.0

    def __add__(self, other: "Need") -> "Need":
        return Need(self.moved + other.moved, self.flops + other.flops)


@dataclass(frozen=True, slots=True)
class Network:
    """Sizes that decide the cost of a forward: numbers of parameters by kind, and the layers' keys and values.

    `dense` parameters are read and multiplied with every row, those of `experts` by the share of experts that is chosen,
    those of the `head` with wanted rows only; `mean` says whether wanted rows are also turned back into embeddings.
    """

    dense: int
    experts: int
    expert_count: int
    chosen: int
    head: int
    mean: bool
    heads: int
    layers: tuple[KVShape, ...]
    itemsize: int


def network_of(network: PreTrainedModel, ranks: int = 1) -> Network:
    """The facts of `network`; of one that several ranks share, those of one share."""
    head: Any = head_of(network).weight
    apart = {id(head), id(embedding_of(network).weight)}
    stacks = expert_stacks(network)
    apart |= {id(stack) for stack in stacks}
    named = network.named_parameters()
    dense = [each for name, each in named if id(each) not in apart and not any(part in name for part in UNREAD)]
    text: Any = network.config.get_text_config()
    return Network(
        dense=sum(each.numel() for each in dense),
        experts=sum(stack.numel() for stack in stacks),
        expert_count=stacks[0].shape[0] if stacks else 0,
        chosen=(getattr(text, "top_k_experts", None) or text.num_experts_per_tok) if stacks else 0,
        head=head.numel(),
        mean=text.model_type.startswith("diffusion_gemma"),
        heads=text.num_attention_heads // ranks,
        layers=kv_shapes(network.config, ranks),
        itemsize=network.dtype.itemsize,
    )


def touched(network: Network, rows: int) -> float:
    """The share of experts that at least one of `rows` rows chooses, if they choose evenly and by themselves."""
    return 1.0 - (1.0 - network.chosen / network.expert_count) ** rows if network.expert_count else 0.0


def need_of(network: Network, plan: Plan) -> Need:
    """Bytes and operations that the forwards of `plan` need; spans of one mode make one forward."""
    modes = {span.mode for span in plan.spans}
    return sum((_forward(network, [span for span in plan.spans if span.mode == mode]) for mode in modes), start=Need())


def _forward(network: Network, spans: list[Span]) -> Need:
    rows = sum(len(span.tokens) for span in spans)
    wanted = sum(len(span.wanted) for span in spans)
    reads = network.dense + network.experts * touched(network, rows)
    share = network.chosen / network.expert_count if network.expert_count else 0.0
    flops = 2.0 * rows * (network.dense + network.experts * share)
    if wanted:
        times = 2 if network.mean else 1
        reads += times * network.head
        flops += 2.0 * times * wanted * network.head
    return Need(reads * network.itemsize, flops) + _attention(network, spans)


def _attention(network: Network, spans: Iterable[Span]) -> Need:
    """Keys and values of what is seen, once for each span; every row's product with all of them."""
    moved = flops = 0.0
    spans = list(spans)
    for layer in network.layers:
        for span in spans:
            first = span.grid.start(span.start)
            seen = span.end if layer.window is None else span.end - max(0, first - layer.window + 1)
            moved += 2.0 * seen * layer.kv_heads * layer.head_dim * network.itemsize
            flops += 4.0 * len(span.tokens) * seen * layer.kv_heads * layer.group * layer.head_dim
    return Need(moved, flops)


def least_us(network: Network, plan: Plan, ceilings: Ceilings) -> float:
    """Microseconds that the forwards of `plan` take at least."""
    need = need_of(network, plan)
    return ceilings.least_us(need.moved, need.flops)
