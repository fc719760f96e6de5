"""Mixture of experts inside the unmodified transformers classes."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from dlstep_kernels import ExpertScales, has_kernels, mix_experts
from dlstep_kernels.experts import Activation
from dlstep_kernels.quantization import FP8

from .routing import install_routers
from .transformers_internals import ExpertsInterface, GELUTanh, SiLUActivation, plain_experts

EXPERTS = "dlstep_experts"  # the name under which transformers finds `mix`
SCALES = {"gate_up_proj": "gate_up_scales", "down_proj": "down_scales"}  # the buffer with the scales of each quantized weight
GROUPED_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
GROUPED_ALIGNMENT = 16  # bytes; grouped_mm needs row sizes that are multiples of this
_ACTIVATIONS: dict[type[nn.Module], Activation] = {nn.SiLU: "silu", SiLUActivation: "silu", GELUTanh: "gelu_tanh"}


@torch.library.custom_op("dlstep::mix_experts", mutates_args=())
def _mix_experts(
    hidden: Tensor,
    chosen: Tensor,
    weights: Tensor,
    gate_up: Tensor,
    down: Tensor,
    gate_up_scales: Tensor | None,
    down_scales: Tensor | None,
    activation: str,
) -> Tensor:
    """Wrap `mix_experts` as a custom operation, which compilers do not trace into."""
    known: Any = activation  # schemas of operations do not support Literal types
    scales = None if gate_up_scales is None or down_scales is None else ExpertScales(gate_up_scales, down_scales)
    return mix_experts(hidden, chosen, weights, gate_up, down, scales, activation=known)


@_mix_experts.register_fake
def _(hidden: Tensor, *others: object) -> Tensor:
    del others
    return torch.empty_like(hidden)


def mix(module: nn.Module, hidden: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
    """Return the output of the experts of `module` for n rows; `fits(module)` must be true.

    Shapes: `hidden` [n, hidden]; `chosen` and `weights` [n, k]. Not annotated, because compilers
    trace this function.
    """
    experts: Any = module
    scales = [getattr(experts, name, None) for name in SCALES.values()]
    return _mix_experts(
        hidden, chosen, weights, experts.gate_up_proj, experts.down_proj, *scales, _ACTIVATIONS[type(experts.act_fn)]
    )


def fits(module: nn.Module) -> bool:
    """Return whether `mix` supports these experts."""
    return plain_experts(module) and type(getattr(module, "act_fn", None)) in _ACTIVATIONS


def install_experts(network: PreTrainedModel) -> None:
    """Select the implementation of experts: dlstep's kernels if possible, else grouped_mm, else eager."""
    stacked = stacked_experts(network)
    stacks = [stack for module in stacked for stack in _stacks(module)]
    if not stacks:
        return
    chosen = "eager"
    if all(stack.dtype == FP8 for stack in stacks):
        chosen = EXPERTS  # the other implementations cannot read quantized weights
    elif all(stack.dtype in GROUPED_DTYPES for stack in stacks):
        if has_kernels(stacks[0].device) and all(map(fits, stacked)):
            chosen = EXPERTS
        elif all(stack.shape[-1] * stack.element_size() % GROUPED_ALIGNMENT == 0 for stack in stacks):
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
