"""Our mixture of experts inside the unmodified transformers classes, and when it is taken."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.activations import GELUTanh, SiLUActivation
from transformers.integrations.moe import ExpertsInterface

from dlstep_kernels import has_kernels, mix_experts
from dlstep_kernels.experts import Activation

from .routing import install_routers

EXPERTS = "dlstep_experts"  # the name under which transformers finds it
GROUPED_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
GROUPED_ALIGNMENT = 16  # bytes of which rows must be a multiple, so that experts are multiplied as one group
_ACTIVATIONS: dict[type[nn.Module], Activation] = {nn.SiLU: "silu", SiLUActivation: "silu", GELUTanh: "gelu_tanh"}
_PLAIN = {"has_gate": True, "is_concatenated": True, "has_bias": False, "is_transposed": False, "has_post_expert_norm": False}


@torch.library.custom_op("dlstep::mix_experts", mutates_args=())
def _mix_experts(hidden: Tensor, chosen: Tensor, weights: Tensor, gate_up: Tensor, down: Tensor, activation: str) -> Tensor:
    """`mix_experts` as an operation that a compiler takes as it is."""
    known: Any = activation  # a schema knows no literals
    return mix_experts(hidden, chosen, weights, gate_up, down, activation=known)


@_mix_experts.register_fake
def _(hidden: Tensor, chosen: Tensor, weights: Tensor, gate_up: Tensor, down: Tensor, activation: str) -> Tensor:
    del chosen, weights, gate_up, down, activation
    return torch.empty_like(hidden)


def mix(module: nn.Module, hidden: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
    """Output of the experts of `module`, which must be such as `fits` asks for, for some rows: `hidden` of n, with `chosen`
    and `weights` of n by k. Plain tensors, because a compiler traces this and cannot trace a check of shapes.
    """
    experts: Any = module
    return _mix_experts(hidden, chosen, weights, experts.gate_up_proj, experts.down_proj, _ACTIVATIONS[type(experts.act_fn)])


def fits(module: nn.Module) -> bool:
    """Whether `mix` knows what these experts compute: gated in the usual way, a gate's rows in front of the others, no bias."""
    gated = getattr(type(module), "_apply_gate", None)
    return (
        all(getattr(module, name, wanted) is wanted for name, wanted in _PLAIN.items())
        and getattr(gated, "__module__", None) == ExpertsInterface.__module__  # not one of the class's own
        and type(getattr(module, "act_fn", None)) in _ACTIVATIONS
    )


def install_experts(network: PreTrainedModel) -> None:
    """Choose and multiply experts by our kernels where they run; else multiply them as one group where torch can, else one by
    one.
    """
    stacked = [module for module in network.modules() if _stacks(module)]
    stacks = [stack for module in stacked for stack in _stacks(module)]
    if not stacks:
        return
    chosen = "eager"
    if all(stack.dtype in GROUPED_DTYPES for stack in stacks):
        if has_kernels(stacks[0].device) and all(map(fits, stacked)):
            chosen = EXPERTS
        elif all(stack.shape[-1] * stack.element_size() % GROUPED_ALIGNMENT == 0 for stack in stacks):
            chosen = "grouped_mm"
    network.set_experts_implementation(chosen)
    if chosen == EXPERTS:
        install_routers(network)


def _stacks(module: nn.Module) -> list[nn.Parameter]:
    """The parameters of a module itself that hold the weights of all its experts."""
    named = module.named_parameters(recurse=False)
    return [each for name, each in named if each.ndim == 3 and name in ("gate_up_proj", "down_proj")]


ExpertsInterface.register(EXPERTS, mix)
