"""Linear layers with a low-rank update that only applies to the rows of drafts.

A forward pass may hold rows of drafts and rows that verify others. The gates are an input of the
pass, so one captured graph serves both.
"""

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel


class Gates:
    """The rows of the current forward pass to which the update applies: 1 or 0 for each, shared by all layers."""

    def __init__(self) -> None:
        self.rows: Tensor | None = None


class Gated(nn.Module):
    """A linear layer plus `scale` times B @ A on the rows whose gate is 1.

    Annotated as plain tensors, because compilers cannot trace shape checks.
    """

    def __init__(self, base: nn.Linear, a: Tensor, b: Tensor, scale: float, gates: Gates) -> None:
        super().__init__()
        kind = {"device": base.weight.device, "dtype": base.weight.dtype}
        self.base, self.scale, self.gates = base, scale, gates
        self.a, self.b = (nn.Parameter(part.to(**kind), requires_grad=False) for part in (a, b))

    def forward(self, rows: Tensor) -> Tensor:
        """Return the product of rows [..., n, in_features], with the update where the gate is 1."""
        product = self.base(rows)
        gates = self.gates.rows
        if gates is None:
            return product
        update = nn.functional.linear(nn.functional.linear(rows, self.a), self.b) * self.scale
        # Select, because adding 0 times the update could change the bits of the other rows.
        return torch.where(gates[:, None] > 0, product + update, product)


def gates_of(network: PreTrainedModel) -> Gates | None:
    """Return the gates that the layers of a network share; None if it has no such layers."""
    return next((module.gates for module in network.modules() if isinstance(module, Gated)), None)
