"""Linear layers with a low-rank update that applies only to the rows of drafts.

A forward pass may contain rows of drafts and rows of verifying passes. The gates are an input of the
forward pass, so one captured graph serves both kinds of rows.
"""

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel


class Gates:
    """The gate of each row of the current forward pass: 1 if the update applies to the row, else 0.

    All layers share one object. `rows` is None if no row is gated.
    """

    def __init__(self) -> None:
        self.rows: Tensor | None = None


class Gated(nn.Module):
    """A linear layer that adds the low-rank update `scale` times B @ A on the rows whose gate is 1.

    `forward` is annotated with plain tensors, because compilers cannot trace shape checks.
    """

    def __init__(self, base: nn.Linear, a: Tensor, b: Tensor, scale: float, gates: Gates) -> None:
        super().__init__()
        kind = {"device": base.weight.device, "dtype": base.weight.dtype}
        self.base, self.scale, self.gates = base, scale, gates
        self.a, self.b = (nn.Parameter(part.to(**kind), requires_grad=False) for part in (a, b))

    def forward(self, rows: Tensor) -> Tensor:
        """Return the output for rows [..., n, in_features], with the update where the gate is 1."""
        product = self.base(rows)
        gates = self.gates.rows
        if gates is None:
            return product
        update = nn.functional.linear(nn.functional.linear(rows, self.a), self.b) * self.scale
        # Select instead of multiplying the update by the gate: adding 0 could change the bits of the other rows.
        return torch.where(gates[:, None] > 0, product + update, product)


def gates_of(network: PreTrainedModel) -> Gates | None:
    """Return the gates that the layers of a network share; None if no layer is gated."""
    return next((module.gates for module in network.modules() if isinstance(module, Gated)), None)
