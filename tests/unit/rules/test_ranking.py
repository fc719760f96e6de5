"""Acceptance by entropy, against that of transformers."""

import torch
from transformers.models.diffusion_gemma.generation_diffusion_gemma import EntropyBoundSampler, EntropyBoundSamplerConfig

from dlstep.rules._ranking import accepted

from ..driver.random_gemmas import CANVAS, STEPS, VOCABULARY


def test_acceptance_is_that_of_transformers() -> None:
    generator = torch.Generator().manual_seed(0)
    for bound in (0.05, 0.5, 3.0, 100.0):
        theirs = EntropyBoundSampler(EntropyBoundSamplerConfig(bound), CANVAS, VOCABULARY, STEPS)
        for _ in range(50):
            logits = torch.randn((1, CANVAS, VOCABULARY), generator=generator) * 4
            canvas = torch.zeros((1, CANVAS), dtype=torch.int64)
            theirs.accept_canvas(canvas, canvas, logits, 1)
            assert theirs.accepted_token_mask is not None
            entropies = torch.distributions.Categorical(logits=logits).entropy()[0].tolist()
            assert accepted(tuple(entropies), bound) == theirs.accepted_token_mask[0].nonzero()[:, 0].tolist()
