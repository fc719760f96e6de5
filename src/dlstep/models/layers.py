"""Layers inside the unmodified transformers classes: paged attention, mixtures of experts, and adapters for drafts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel

from dlstep_kernels import (
    AttentionLayout,
    Tiles,
    choose_experts,
    has_kernels,
    mix_experts,
    paged_attention,
    softmax_experts,
    store_kv,
    tiled_attention,
)
from dlstep_kernels.experts import Activation
from dlstep_kernels.quantization import FP8

from .transformers_internals import (
    DiffusionGemmaTextRouter,
    ExpertsInterface,
    GELUTanh,
    Glm4MoeTopkRouter,
    SiLUActivation,
    plain_experts,
)

ATTENTION = "dlstep_paged"  # the name that is registered with transformers
LayerPages = tuple[Float[Tensor, "slots _kv_heads _head_dim"], ...]  # the slots of each layer, page after page
Watch = Callable[[int, Tensor, int | None, float], None]  # gets layer, queries [n, heads, head_dim], sliding window and scale


@dataclass(slots=True)  # frozen, torch 2.11 would guard compiled layers by every tensor below
class PagedContext:
    """Where a forward pass stores keys and values, and what its rows see."""

    key_pages: LayerPages
    """Key slots of each layer, page after page."""
    value_pages: LayerPages
    """Value slots of each layer, page after page."""
    slot_mapping: Int64[Tensor, " n"]
    """Slot of each row; -1: not stored."""
    layouts: Mapping[tuple[int | None, int], AttentionLayout | Tiles]
    """The visible positions of each row, by sliding window (or None) and query heads per key head; `Tiles` for kernels."""
    watch: Watch | None = None
    """Called in each layer once its keys and values are stored."""


def attend(
    module: nn.Module,
    query: Float[Tensor, "1 heads n head_dim"],
    key: Float[Tensor, "1 kv_heads n head_dim"],
    value: Float[Tensor, "1 kv_heads n head_dim"],
    attention_mask: Tensor | None,
    *,
    scaling: float,
    paged: PagedContext,
    sliding_window: int | None = None,
    **others: object,
) -> tuple[Float[Tensor, "1 n heads head_dim"], None]:
    """Store the rows' keys and values, then compute attention of each row over what it sees."""
    del attention_mask, others
    layer = int(module.layer_idx)  # pyright: ignore[reportArgumentType]
    key_pages, value_pages = paged.key_pages[layer], paged.value_pages[layer]
    keys, values, queries = key[0].transpose(0, 1), value[0].transpose(0, 1), query[0].transpose(0, 1)
    layout = paged.layouts[sliding_window, queries.shape[1] // keys.shape[1]]
    store_kv(keys, values, key_pages, value_pages, paged.slot_mapping)
    if paged.watch is not None:
        paged.watch(layer, queries, sliding_window, scaling)
    if isinstance(layout, Tiles):
        return tiled_attention(queries, key_pages, value_pages, layout, scale=scaling)[None], None
    return paged_attention(queries, key_pages, value_pages, layout, scale=scaling)[None], None


# It launches its own kernels, so there is nothing to compile.
_UNCOMPILED = torch.compiler.disable(attend)


def install() -> None:
    """Register the attention with transformers. Calling it again is harmless."""
    AttentionInterface.register(ATTENTION, _UNCOMPILED)


EXPERTS = "dlstep_experts"  # the name under which transformers finds `mix`
SCALES = {"gate_up_proj": "gate_up_scales", "down_proj": "down_scales"}  # the buffer with the scales of each quantized weight
GROUPED_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
GROUPED_ALIGNMENT = 16  # bytes; grouped_mm needs row sizes that are multiples of this
_ACTIVATIONS: dict[type[nn.Module], Activation] = {nn.SiLU: "silu", SiLUActivation: "silu", GELUTanh: "gelu_tanh"}


# Custom operations, which compilers do not trace into.
_mix_experts = torch.library.custom_op(
    "dlstep::mix_experts",
    mix_experts,
    mutates_args=(),
    schema="(Tensor hidden, Tensor chosen, Tensor weights, Tensor gate_up, Tensor down, Tensor? gate_up_scales, "
    "Tensor? down_scales, *, str activation) -> Tensor",
)
_choose_experts = torch.library.custom_op(
    "dlstep::choose_experts",
    choose_experts,
    mutates_args=(),
    schema="(Tensor hidden, Tensor weight, Tensor bias, *, int groups, int kept_groups, int count, bool normalised, "
    "float scale) -> (Tensor, Tensor)",
)
_softmax_experts = torch.library.custom_op(
    "dlstep::softmax_experts",
    softmax_experts,
    mutates_args=(),
    schema="(Tensor logits, Tensor factors, *, int count) -> (Tensor, Tensor)",
)


@_mix_experts.register_fake
def _(hidden: Tensor, *others: object, **options: object) -> Tensor:
    del others, options
    return torch.empty_like(hidden)


@_choose_experts.register_fake
@_softmax_experts.register_fake
def _(rows: Tensor, *others: object, count: int, **options: object) -> tuple[Tensor, Tensor]:
    del others, options
    size = (rows.shape[0], count)
    return rows.new_empty(size, dtype=torch.int64), rows.new_empty(size, dtype=torch.float32)


def mix(module: nn.Module, hidden: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
    """Return the output of the experts of `module` for n rows; `fits(module)` must be true.

    Shapes: `hidden` [n, hidden]; `chosen` and `weights` [n, k]. Not annotated, because compilers
    trace this function.
    """
    experts: Any = module
    scales = [getattr(experts, name, None) for name in SCALES.values()]
    activation = _ACTIVATIONS[type(experts.act_fn)]
    return _mix_experts(hidden, chosen, weights, experts.gate_up_proj, experts.down_proj, *scales, activation=activation)


def fits(module: nn.Module) -> bool:
    """Return whether `mix` supports these experts."""
    return plain_experts(module) and type(getattr(module, "act_fn", None)) in _ACTIVATIONS


def install_experts(network: PreTrainedModel) -> None:
    """Select the implementation of experts: dlstep's if there are kernels, else grouped_mm, else eager.

    grouped_mm needs all experts, so a rank that holds only some of them uses dlstep's, or else eager.
    """
    stacked = stacked_experts(network)
    stacks = [stack for module in stacked for stack in _stacks(module)]
    if not stacks:
        return
    chosen = "eager"
    if all(stack.dtype == FP8 for stack in stacks):
        chosen = EXPERTS  # the other implementations cannot read quantized weights
    elif all(stack.dtype in GROUPED_DTYPES for stack in stacks):
        whole = all(len(stack) == getattr(module, "num_experts", len(stack)) for module in stacked for stack in _stacks(module))
        if (has_kernels(stacks[0].device) or not whole) and all(map(fits, stacked)):
            chosen = EXPERTS
        elif whole and all(stack.shape[-1] * stack.element_size() % GROUPED_ALIGNMENT == 0 for stack in stacks):
            chosen = "grouped_mm"
    network.set_experts_implementation(chosen)
    if chosen == EXPERTS:
        install_routers(network)


def stacked_experts(network: nn.Module) -> list[nn.Module]:
    """Return the modules that hold the weights of all experts of a layer."""
    return [module for module in network.modules() if _stacks(module)]


def _stacks(module: nn.Module) -> list[nn.Parameter]:
    """Return the module's own parameters that stack the weights of all its experts."""
    named = module.named_parameters(recurse=False)
    return [stack for name, stack in named if stack.ndim == 3 and name in SCALES]


ExpertsInterface.register(EXPERTS, mix)


def install_routers(network: PreTrainedModel) -> None:
    """Make routers of known classes use our kernels. A second call changes nothing."""
    for module in network.modules():
        if isinstance(module, DiffusionGemmaTextRouter):
            module.__class__ = SoftmaxRouter
        if isinstance(module, Glm4MoeTopkRouter):
            module.__class__ = ExpertRouter
            # transformers keeps it in float32 since 5.24; the kernel needs the dtype of the hidden states.
            module.weight = nn.Parameter(module.weight.to(network.dtype), requires_grad=False)


class ExpertRouter(Glm4MoeTopkRouter):
    """A router that uses `choose_experts`."""

    def forward(self, hidden_states: Tensor) -> tuple[None, Tensor, Tensor]:
        """Return (None, weights, chosen experts); only training would read logits.

        Annotated as plain tensors, because compilers cannot trace shape checks.
        """
        chosen, weights = _choose_experts(
            hidden_states.reshape(-1, self.hidden_dim),
            self.weight,
            self.e_score_correction_bias,
            groups=self.num_group,
            kept_groups=self.topk_group,
            count=self.top_k,
            normalised=self.norm_topk_prob,
            scale=self.routed_scaling_factor,
        )
        return None, weights, chosen


class SoftmaxRouter(DiffusionGemmaTextRouter):
    """A router that uses `softmax_experts`."""

    def forward(self, hidden_states: Tensor) -> tuple[None, Tensor, Tensor]:
        """Return (None, weights, chosen experts); only training would read probabilities.

        Annotated as plain tensors, because compilers cannot trace shape checks.
        """
        logits = self.proj(self.norm(hidden_states) * self.scale * self.scalar_root_size)
        chosen, weights = _softmax_experts(logits, self.per_expert_scale, count=self.config.top_k_experts)
        return None, weights, chosen


class Gates:
    """The gate of each row of the current forward pass: 1 if the update applies to the row, else 0.

    All layers share one object. `rows` is None if no row is gated.
    """

    def __init__(self) -> None:
        self.rows: Tensor | None = None


class Adapted(nn.Module):
    """A linear layer that adds the low-rank update `scale` times B @ A on the rows whose gate is 1, without gates on all.

    `forward` is annotated with plain tensors, because compilers cannot trace shape checks.
    """

    def __init__(self, base: nn.Linear, a: Tensor, b: Tensor, scale: float, gates: Gates | None) -> None:
        super().__init__()
        kind = {"device": base.weight.device, "dtype": base.weight.dtype}
        self.base, self.scale, self.gates = base, scale, gates
        self.a, self.b = (nn.Parameter(part.to(**kind), requires_grad=False) for part in (a, b))

    def forward(self, rows: Tensor) -> Tensor:
        """Return the output for rows [..., n, in_features], with the update where it applies."""
        product, gates = self.base(rows), None if self.gates is None else self.gates.rows
        if self.gates is not None and gates is None:
            return product
        updated = product + nn.functional.linear(nn.functional.linear(rows, self.a), self.b) * self.scale
        # Select instead of multiplying the update by the gate: adding 0 could change the bits of the other rows.
        return updated if gates is None else torch.where(gates[:, None] > 0, updated, product)


def shared_gates(network: PreTrainedModel) -> Gates | None:
    """Return the gates that the layers of a network share; None if no layer is gated."""
    return next((module.gates for module in network.modules() if isinstance(module, Adapted)), None)
