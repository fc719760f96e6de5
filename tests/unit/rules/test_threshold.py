"""The threshold rule, on confidences and on entropies."""

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from dlstep.rules.threshold import Threshold

from .single_forwards import TENTHS, Forward, forwards


@given(forward=forwards(), accept=TENTHS, inclusive=st.booleans(), must=st.booleans())
def test_a_threshold_on_entropies_is_one_on_doubt(forward: Forward, accept: float, inclusive: bool, must: bool) -> None:
    """Where entropy is one less the probability, both orders take the same."""
    alike = replace(forward, entropies=tuple(round(1 - probability, 1) for probability in forward.probabilities))
    by_entropy = Threshold(order="entropy", entropy_threshold=round(1 - accept, 1), inclusive=inclusive)
    assert alike.chosen(by_entropy, must=must) == alike.chosen(Threshold(accept, inclusive=inclusive), must=must)


@given(forward=forwards(), falling=TENTHS)
def test_the_first_forward_of_a_block_has_the_whole_threshold(forward: Forward, falling: float) -> None:
    plain, less = forward.chosen(Threshold(0.8), must=False), forward.chosen(Threshold(0.8, falling=falling), must=False)
    assert set(plain) <= set(less)
    assert less == plain or (falling and len(forward.left) < forward.size)


@pytest.mark.parametrize(
    "options",
    [
        {"order": "entropy", "accept_threshold": 0.5},
        {"order": "entropy", "falling": 0.3},
        {"entropy_threshold": 0.4},
    ],
)
def test_options_of_the_other_order_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="has no effect with order="):
        Threshold(**options)  # type: ignore[arg-type]
