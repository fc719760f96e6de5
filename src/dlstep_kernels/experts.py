"""Mixture of experts: gated products of each row with the weights of its chosen experts."""

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor
from torch.nn.functional import gelu, silu

from .choice import with_kernel
from .quantization import FP8, quantize_rows

Activation = Literal["silu", "gelu_tanh"]
_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"silu": silu, "gelu_tanh": lambda gate: gelu(gate, approximate="tanh")}


def _suits(
    hidden: Tensor,
    chosen: Tensor,
    weights: Tensor,
    gate_up: Tensor,
    down: Tensor,
    gate_up_scales: Tensor | None = None,
    *others: object,
    **options: object,
) -> bool:
    del chosen, weights, others, options
    kind = hidden.dtype if gate_up_scales is None else FP8
    return kind == gate_up.dtype == down.dtype and gate_up.is_contiguous() and down.is_contiguous()


@with_kernel("experts", suits=_suits)
def mix_experts(
    hidden: Float[Tensor, "n hidden"],
    chosen: Int64[Tensor, "n k"],
    weights: Float[Tensor, "n k"],
    gate_up: Float[Tensor, "experts twice_inner hidden"],
    down: Float[Tensor, "experts hidden inner"],
    gate_up_scales: Float32[Tensor, "experts twice_inner"] | None = None,
    down_scales: Float32[Tensor, "experts hidden"] | None = None,
    *,
    activation: Activation,
) -> Float[Tensor, "n hidden"]:
    """Return sum_e weight_e * down[e] @ (activation(gate) * up); gate, up = gate_up[e] @ row.

    Computed in fp32; only the input of `down` and the result are rounded to the dtype of `hidden`.
    Experts are summed in the order of `chosen`. With scales, the inputs of both products are
    quantized row by row (`quantize_rows`), and each product is multiplied by the scales of its factors.

    Args:
        hidden: Hidden state of each row.
        chosen: Index of each expert of each row; an index out of range contributes nothing.
        weights: Weight of each chosen expert.
        gate_up: Gate and up projection of each expert, concatenated.
        down: Down projection of each expert.
        gate_up_scales: Scale of each output of `gate_up` if it is FP8; None if it has the dtype of `hidden`.
        down_scales: The same for `down`.
        activation: Activation function of the gate.
    """
    (rows, count), width = chosen.shape, hidden.shape[1]
    every = chosen.flatten()
    parts = torch.zeros((rows * count, width), dtype=torch.float32, device=hidden.device)
    for expert in every.unique().tolist():
        if not 0 <= expert < len(gate_up):
            continue
        (pairs,) = torch.nonzero(every == expert, as_tuple=True)
        gate, up = _product(hidden[pairs // count], gate_up, gate_up_scales, expert).chunk(2, dim=1)
        inner = (_ACTIVATIONS[activation](gate) * up).to(hidden.dtype)
        parts[pairs] = _product(inner, down, down_scales, expert) * weights.flatten()[pairs, None].float()
    total = torch.zeros((rows, width), dtype=torch.float32, device=hidden.device)
    for part in parts.view(rows, count, width).unbind(1):
        total = total + part
    return total.to(hidden.dtype)


def _product(
    rows: Float[Tensor, "n depth"], stack: Float[Tensor, "experts width depth"], scales: Tensor | None, expert: int
) -> Tensor:
    """Return the product with the weight of one expert in fp32. If the weights have `scales`, the rows are quantized first."""
    weight = stack[expert].float().T
    if scales is None:
        return rows.float() @ weight
    codes, row_scales = quantize_rows(rows)
    return (codes.float() @ weight) * (row_scales[:, None] * scales[expert])
