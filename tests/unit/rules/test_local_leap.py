"""LocalLeap where it is the threshold rule."""

from hypothesis import given, strategies as st

from dlstep.rules.local_leap import LocalLeap
from dlstep.rules.threshold import Threshold

from .single_forwards import TENTHS, Forward, forwards


@given(forward=forwards(), accept=TENTHS, radius=st.integers(0, 12), must=st.booleans())
def test_a_leap_to_the_same_threshold_is_the_threshold_rule(forward: Forward, accept: float, radius: int, must: bool) -> None:
    expected = forward.chosen(Threshold(accept, inclusive=True), must=must)
    assert forward.chosen(LocalLeap(accept, accept, radius), must=must) == expected
    assert forward.chosen(LocalLeap(accept, 0.0, 0), must=must) == expected
