"""Muon in float32 equals torch's Muon, except for rounding."""

import pytest
import torch

from training.muon import Float32Muon


@pytest.mark.parametrize("shape", [(128, 48), (48, 128), (64, 64)], ids=str)
def test_updates_are_those_of_torch(shape):
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(shape, generator=generator)
    matrices = [torch.nn.Parameter(start.clone()) for _ in range(2)]
    settings = {"lr": 0.01, "weight_decay": 0.5, "adjust_lr_fn": "match_rms_adamw"}
    kinds = (torch.optim.Muon, Float32Muon)
    optimisers = [kind([matrix], **settings) for kind, matrix in zip(kinds, matrices, strict=True)]
    for _ in range(3):
        gradient = torch.randn(shape, generator=generator)
        for matrix, optimiser in zip(matrices, optimisers, strict=True):
            matrix.grad = gradient.clone()
            optimiser.step()
        moved = [(matrix - start).detach() for matrix in matrices]
        # torch iterates in bfloat16, which has 8 significant bits, and each of five iterations rounds several times.
        assert (moved[0] - moved[1]).norm() < 0.02 * moved[0].norm()
