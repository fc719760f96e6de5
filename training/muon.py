"""Muon in float32, for processors without instructions for bfloat16."""

import math
from collections.abc import Callable

import torch
from torch import Tensor


class Float32Muon(torch.optim.Muon):
    """torch's Muon with `adjust_lr_fn="match_rms_adamw"` and Nesterov momentum, but with iterations
    in float32.

    torch always iterates in bfloat16. On a processor without instructions for bfloat16, this takes
    half of the time of a training step.
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update the matrices that have a gradient."""
        assert closure is None, "the loss is computed before the step"
        for group in self.param_groups:
            for matrix in group["params"]:
                if matrix.grad is None:
                    continue
                state = self.state[matrix]
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = torch.zeros_like(matrix)
                momentum = state["momentum_buffer"].lerp_(matrix.grad, 1 - group["momentum"])
                update = _orthogonal(matrix.grad.lerp(momentum, group["momentum"]), group)
                matrix.mul_(1 - group["lr"] * group["weight_decay"])
                matrix.add_(update, alpha=-0.2 * math.sqrt(max(matrix.shape)) * group["lr"])


def _orthogonal(matrix: Tensor, group: dict) -> Tensor:
    """Return the matrix after Newton-Schulz iterations, which move its singular values close to 1."""
    if matrix.shape[0] > matrix.shape[1]:
        return _orthogonal(matrix.T, group).T
    a, b, c = group["ns_coefficients"]
    matrix = matrix / matrix.norm().clamp(min=group["eps"])
    for _ in range(group["ns_steps"]):
        gram = matrix @ matrix.T
        matrix = torch.addmm(matrix, torch.addmm(gram, gram, gram, beta=b, alpha=c), matrix, beta=a)
    return matrix
