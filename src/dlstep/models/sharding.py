"""Shard a network for a tensor-parallel group, and sum results across ranks.

Sharding follows transformers' `tp_plan`: attention by heads, products by their inner width. Each
rank holds an equal number of whole experts. Embedding and head are both sharded by vocabulary, so that they can
be tied.
"""

import re
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from jaxtyping import Float, Int64
from torch import Tensor, nn
from transformers import DiffusionGemmaForBlockDiffusion, PretrainedConfig, PreTrainedModel

from dlstep_kernels.vocabulary import Share, VocabularyShard, cut_of, gather_columns

from ..distributed.ranks import Ranks
from .shapes import embedding_of, head_of, kv_shapes
from .transformers_internals import Glm4MoeMoE, tensor_parallel_plan

HEADS = ("q_proj", "o_proj")
KV_HEADS = ("k_proj", "v_proj")
# The known kinds; only colwise, rowwise and moe_tp_experts are sharded. Embedding and head are always sharded by vocabulary.
KINDS = (
    "colwise",
    "rowwise",
    "packed_colwise",
    "moe_tp_experts",
    "replicated_with_grad_allreduce",
    "colwise_gather_output",
    "embedding_rowwise",
)


class ParameterShard(NamedTuple):
    """The shard of a parameter: `start` to `stop` of dimension `dim`, which is negative (-1: last).

    With `dim` None, the parameter is whole on rank 0 and zero on other ranks, so that a sum over
    ranks adds it once.
    """

    dim: int | None
    start: int = 0
    stop: int = 0

    def shape(self, whole: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the shard of a parameter of shape `whole`."""
        if self.dim is None:
            return whole
        sizes = list(whole)
        sizes[self.dim] = self.stop - self.start
        return tuple(sizes)


def sharding_plan(network: PreTrainedModel) -> dict[str, str]:
    """Return transformers' `tp_plan`: patterns of module and parameter names, and kinds of cuts.

    Raises ValueError if there is none, or if it has a kind that is not supported here.
    """
    plan = tensor_parallel_plan(network)
    if not plan:
        raise ValueError(
            f"tensor_parallel_size: transformers has no tp_plan for {type(network).__name__}, so it cannot be cut into ranks: "
            "leave tensor_parallel_size at 1"
        )
    unknown = sorted({kind for kind in plan.values() if kind not in KINDS})
    if unknown:
        raise ValueError(
            f"tensor_parallel_size: the tp_plan of {type(network).__name__} cuts by {', '.join(unknown)}, which is not known "
            "here: leave tensor_parallel_size at 1"
        )
    return plan


def shard_kind(name: str, plan: Mapping[str, str]) -> str | None:
    """Return how the plan shards a module or parameter; None: not at all, as for vision towers."""
    if "vision" in name:
        return None
    for pattern, kind in plan.items():
        if re.fullmatch(r"(?:.*\.)?" + re.escape(pattern).replace(r"\*", r"\d+"), name):
            return kind
    return None


def parameter_shards(network: PreTrainedModel, ranks: Ranks) -> dict[str, ParameterShard]:
    """Return this rank's shard of each sharded parameter. The network may be on the meta device.

    Raises ValueError if the network cannot be sharded among this number of ranks.
    """
    if not ranks.several:
        return {}
    plan = sharding_plan(network)
    check_heads(network.config, ranks.size)
    cuts: dict[str, ParameterShard] = {}
    for name, module in network.named_modules():
        kind = shard_kind(name, plan)
        if isinstance(module, nn.Linear) and kind in ("colwise", "rowwise"):
            owner = network.get_submodule(name.rpartition(".")[0])
            cuts |= _cuts_of_layer(name, module, kind, owner, ranks)
        if kind == "moe_tp_experts":
            stacks = list(module.named_parameters(recurse=False))
            own = _even(f"the {len(stacks[0][1])} experts of {name}", len(stacks[0][1]), ranks)
            cuts |= {f"{name}.{stack}": ParameterShard(-parameter.ndim, *own) for stack, parameter in stacks}
    ids = cut_of(embedding_of(network).num_embeddings, ranks.rank, ranks.size)
    head = head_of(network)
    for name, module in network.named_modules():
        if (isinstance(module, nn.Embedding) and _embeds(name)) or module is head:
            for own, parameter in module.named_parameters(recurse=False):
                cuts[f"{name}.{own}"] = ParameterShard(-parameter.ndim, ids.first, ids.first + ids.count)
    return cuts


def _cuts_of_layer(name: str, module: nn.Linear, kind: str, owner: nn.Module, ranks: Ranks) -> dict[str, ParameterShard]:
    """Return the cuts of a linear layer: by outputs, including the bias, or by inputs."""
    start, stop = _range(name, module, kind, owner, ranks)
    cuts = {f"{name}.weight": ParameterShard(-2 if kind == "colwise" else -1, start, stop)}
    if module.bias is not None:
        cuts[f"{name}.bias"] = ParameterShard(-1, start, stop) if kind == "colwise" else ParameterShard(None)
    return cuts


def _embeds(name: str) -> bool:
    return "vision" not in name and name.rpartition(".")[2] == "embed_tokens"


def _range(name: str, module: nn.Linear, kind: str, owner: nn.Module, ranks: Ranks) -> tuple[int, int]:
    """Return the range of a layer's outputs (colwise) or inputs (rowwise) on this rank."""
    width = module.out_features if kind == "colwise" else module.in_features
    last = name.rpartition(".")[2]
    if last not in (*HEADS, *KV_HEADS):
        return _even(f"the inner width {width} of {name}", width, ranks)
    head_dim: Any = owner.head_dim
    heads = width // head_dim
    own = max(heads // ranks.size, 1)
    first = ranks.rank * heads // ranks.size
    return first * head_dim, (first + own) * head_dim


def _even(what: str, count: int, ranks: Ranks) -> tuple[int, int]:
    """Return start and stop of this rank's part of `count` items. Raises ValueError, naming `what`, unless parts are equal."""
    if count % ranks.size:
        raise ValueError(f"tensor_parallel_size={ranks.size} does not divide {what}: give a number of ranks that does")
    return ranks.rank * count // ranks.size, (ranks.rank + 1) * count // ranks.size


def check_heads(config: PretrainedConfig, size: int) -> None:
    """Raise ValueError if a layer's heads cannot be divided among `size` ranks."""
    for shape in kv_shapes(config):
        heads = shape.kv_heads * shape.group
        if heads % size or (shape.kv_heads % size and size % shape.kv_heads):
            raise ValueError(
                f"tensor_parallel_size={size} does not fit {heads} query heads and {shape.kv_heads} key heads: give a number "
                "that divides the first, and divides the second or is divided by it"
            )


class VocabRows(nn.Embedding):
    """An embedding with only this rank's rows. Ranks sum their results; adding zeros is exact."""

    def __init__(self, part: nn.Embedding, ranks: Ranks) -> None:
        super().__init__(part.num_embeddings, part.embedding_dim, device="meta")
        self.weight = part.weight
        self.ranks, self.cut = ranks, cut_of(part.num_embeddings, ranks.rank, ranks.size)
        scale = getattr(part, "embed_scale", None)  # a buffer of scaled embeddings
        self.embed_scale = nn.Buffer(scale, persistent=False) if isinstance(scale, Tensor) else None

    def forward(self, input: Int64[Tensor, "..."]) -> Float[Tensor, "... width"]:
        """Return embeddings of ids, equal to those of the whole embedding."""
        rows = self.rows(input)
        return rows if self.embed_scale is None else rows * self.embed_scale.to(rows.dtype)

    def rows(self, ids: Int64[Tensor, "..."]) -> Float[Tensor, "... width"]:
        """Return rows of the whole table, unscaled."""
        own = ids - self.cut.first
        elsewhere = (own < 0) | (own >= self.cut.count)
        if not self.cut.count:
            return self.ranks.add_up(self.weight.new_zeros((*ids.shape, self.embedding_dim)))
        rows = nn.functional.embedding(own.masked_fill(elsewhere, 0), self.weight)
        return self.ranks.add_up(rows.masked_fill(elsewhere[..., None], 0.0))


def install_ranks(network: PreTrainedModel, ranks: Ranks) -> None:
    """Install hooks that combine the results of ranks in a sharded network. Call it once."""
    if not ranks.several:
        return
    plan = sharding_plan(network)
    # A rank adds the outputs of shared and other experts first, so a mixture needs one all-reduce instead of two.
    mixtures = tuple([f"{name}." for name, module in network.named_modules() if isinstance(module, Glm4MoeMoE)])
    for name, module in network.named_modules():
        kind = shard_kind(name, plan)
        if isinstance(module, nn.Linear):
            module.out_features, module.in_features = module.weight.shape
        if kind == "moe_tp_experts":
            module.register_forward_pre_hook(partial(_own_experts, ranks))
        partial_sums = kind in ("rowwise", "moe_tp_experts") and not name.startswith(mixtures)
        if partial_sums or f"{name}." in mixtures:
            module.register_forward_hook(lambda _, inputs, answer: ranks.add_up(answer))
    for name, module in list(network.named_modules()):
        if isinstance(module, nn.Embedding) and _embeds(name):
            network.set_submodule(name, VocabRows(module, ranks))
    if isinstance(network, DiffusionGemmaForBlockDiffusion):  # soft-capping needs all logits
        share = Share(vocabulary_shard(network, ranks), ranks.exchange)

        def gather(module: nn.Module, inputs: tuple[Any, ...], answer: Tensor) -> Tensor:
            del module, inputs
            return gather_columns(answer.flatten(0, -2), share).view(*answer.shape[:-1], share.cut.total)

        head_of(network).register_forward_hook(gather)


def _own_experts(ranks: Ranks, module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return the inputs of experts, with chosen experts renumbered from 0 for this rank's first expert.

    Experts of other ranks get an index out of range, the total number of experts; they contribute nothing.
    """
    experts: Any = module
    hidden, chosen, *others = inputs
    count = experts.num_experts // ranks.size
    own = chosen - ranks.rank * count
    return hidden, own.masked_fill((own < 0) | (own >= count), experts.num_experts), *others


def vocabulary_shard(network: PreTrainedModel, ranks: Ranks) -> VocabularyShard:
    """Return the ids whose logits this rank computes."""
    return cut_of(embedding_of(network).num_embeddings, ranks.rank, ranks.size)
