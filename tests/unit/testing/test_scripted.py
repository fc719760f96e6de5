"""Scored ids on the scripted driver."""

from dataclasses import replace

import pytest

from dlstep.core import PLAIN, Spec
from dlstep.testing.scripted import sample_row, scored_row

from ...helpers.named_plans import plan_of


@pytest.mark.parametrize("heat", [0.0, 0.5])
def test_a_scripted_row_has_the_softmax_of_its_scored_ids(heat: float) -> None:
    """Halves and quarters: ln 2 apart, at temperature 0.5 twice that."""
    spec = Spec(mask_id=3, eos_ids=(0,), vocab_size=5)
    logits = [0.0, 0.6931471805599453, 0.0, 9.0, float("-1e9"), 50.0]
    (span,) = plan_of((), PLAIN).spans
    span = replace(span, params=replace(span.params, temperature=heat))
    token, probability = sample_row(logits, span, 4, 0, spec)
    found = scored_row(logits, (1, 0, 2, 3, 4, 5, -1, token), heat, spec)
    shares = (0.5, 0.25, 0.25) if not heat else (4 / 6, 1 / 6, 1 / 6)
    assert found == pytest.approx((*shares, 0.0, 0.0, 0.0, 0.0, probability))
    assert scored_row([1.0, float("nan")], (0, 1), heat, spec) == (0.0, 0.0)
