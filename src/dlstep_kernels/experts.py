"""Mixture of experts: gated products of each row with the weights of its chosen experts."""

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn.functional import gelu, silu

from .choice import with_kernel

Activation = Literal["silu", "gelu_tanh"]
_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"silu": silu, "gelu_tanh": lambda gate: gelu(gate, approximate="tanh")}


def _suits(hidden: Tensor, chosen: Tensor, weights: Tensor, gate_up: Tensor, down: Tensor, *, activation: Activation) -> bool:
    del chosen, weights, activation
    return hidden.dtype == gate_up.dtype == down.dtype and gate_up.is_contiguous() and down.is_contiguous()


@with_kernel("experts", suits=_suits)
def mix_experts(
    hidden: Float[Tensor, "n hidden"],
    chosen: Int64[Tensor, "n k"],
    weights: Float[Tensor, "n k"],
    gate_up: Float[Tensor, "experts twice_inner hidden"],
    down: Float[Tensor, "experts hidden inner"],
    *,
    activation: Activation,
) -> Float[Tensor, "n hidden"]:
    """Return sum_e weight_e * down[e] @ (activation(gate) * up); gate, up = gate_up[e] @ row.

    Computed in fp32, except that the input of `down` is rounded to its dtype and the result to that
    of `hidden`. Choices are summed in order.

    Args:
        hidden: Hidden state of each row.
        chosen: Experts of each row; a number that is no expert's adds nothing.
        weights: Weight of each chosen expert.
        gate_up: Gate and up projection of each expert, concatenated.
        down: Down projection of each expert.
        activation: Function of the gate.
    """
    (rows, count), width = chosen.shape, hidden.shape[1]
    every = chosen.flatten()
    parts = torch.zeros((rows * count, width), dtype=torch.float32, device=hidden.device)
    for expert in every.unique().tolist():
        if not 0 <= expert < len(gate_up):
            continue
        (pairs,) = torch.nonzero(every == expert, as_tuple=True)
        gate, up = (hidden[pairs // count].float() @ gate_up[expert].float().T).chunk(2, dim=1)
        inner = (_ACTIVATIONS[activation](gate) * up).to(down.dtype)
        parts[pairs] = (inner.float() @ down[expert].float().T) * weights.flatten()[pairs, None].float()
    total = torch.zeros((rows, width), dtype=torch.float32, device=hidden.device)
    for part in parts.view(rows, count, width).unbind(1):
        total = total + part
    return total.to(hidden.dtype)
