"""The entropy bound at the ends of its options, and against that of transformers."""

from dataclasses import replace

import torch
from hypothesis import assume, given, strategies as st
from transformers.models.diffusion_gemma.generation_diffusion_gemma import EntropyBoundSampler, EntropyBoundSamplerConfig

from dlstep.rules.entropy_bound import EntropyBound, accepted

from ..driver.random_gemmas import CANVAS, STEPS, VOCABULARY
from .single_forwards import TENTHS, Forward, forwards


@given(forward=forwards(), order=st.sampled_from(["entropy", "confidence", "margin"]))
def test_without_a_bound_one_is_unmasked(forward: Forward, order: str) -> None:
    assume(all(forward.entropies))
    assert len(forward.chosen(EntropyBound(0.0, order=order))) == 1  # type: ignore[arg-type]


@given(forward=forwards(distinct=True), bound=TENTHS)
def test_orders_that_agree_unmask_the_same(forward: Forward, bound: float) -> None:
    entropies = tuple(round(entropy * 1024) / 1024 for entropy in forward.entropies)  # sums do not depend on their order
    falling = tuple(-entropy for entropy in entropies)
    alike = replace(forward, probabilities=falling, margins=falling, entropies=entropies)
    assume(len(set(alike.entropies)) == len(alike.entropies))
    chosen = alike.chosen(EntropyBound(bound))
    assert alike.chosen(EntropyBound(bound, order="confidence")) == alike.chosen(EntropyBound(bound, order="margin")) == chosen


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
