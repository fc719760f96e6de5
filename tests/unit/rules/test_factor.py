"""The factor rule at the ends of its option."""

from hypothesis import given

from dlstep.rules.factor import Factor
from dlstep.rules.threshold import Threshold

from .single_forwards import Forward, forwards


@given(forward=forwards())
def test_a_large_factor_takes_all(forward: Forward) -> None:
    assert forward.taken(Factor(100.0)) == list(forward.left)


@given(forward=forwards())
def test_no_factor_takes_what_is_certain(forward: Forward) -> None:
    assert forward.taken(Factor(0.0), must=False) == forward.taken(Threshold(1.0, inclusive=True), must=False)
