"""The factor rule at the ends of its option."""

from hypothesis import given

from dlstep.rules.factor import Factor
from dlstep.rules.threshold import Threshold

from .single_forwards import Forward, forwards


@given(forward=forwards())
def test_a_large_factor_unmasks_all(forward: Forward) -> None:
    assert forward.chosen(Factor(100.0)) == list(forward.left)


@given(forward=forwards())
def test_no_factor_unmasks_what_is_certain(forward: Forward) -> None:
    assert forward.chosen(Factor(0.0), must=False) == forward.chosen(Threshold(1.0, inclusive=True), must=False)
