"""Spacing: what it leaves of another rule's choice."""

from itertools import pairwise

from hypothesis import given, strategies as st

from dlstep.rules.entropy_bound import EntropyBound
from dlstep.rules.quota import Quota
from dlstep.rules.spaced import Spaced
from dlstep.rules.threshold import Threshold

from .single_forwards import TENTHS, Forward, forwards


@given(forward=forwards(), accept=TENTHS, stride=st.integers(1, 12) | st.none(), must=st.booleans())
def test_spacing_only_thins_out(forward: Forward, accept: float, stride: int | None, must: bool) -> None:
    chosen, kept = (forward.chosen(rule, must=must) for rule in (Threshold(accept), Spaced(Threshold(accept), stride)))
    assert set(kept) <= set(chosen) and bool(kept) == bool(chosen)
    assert all(later - earlier >= 2 for earlier, later in pairwise(kept))
    if len(chosen) == 1:
        assert kept == chosen


def test_spaced_has_the_statistics_of_its_inner_rule() -> None:
    assert Spaced(Quota(schedule="dream")).whole and Spaced(EntropyBound()).sample_spec == EntropyBound().sample_spec
