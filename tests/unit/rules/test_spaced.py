"""Spacing: what it leaves of another rule's choice, and rules that it refuses."""

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from dlstep.rules.entropy_bound import EntropyBound
from dlstep.rules.hierarchy import Hierarchy
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


def test_spaced_refuses_a_rule_that_remasks() -> None:
    with pytest.raises(ValueError, match=r"Spaced.inner must never remask, but .* does: give another rule"):
        Spaced(Hierarchy(remask_threshold=0.4))
    assert Spaced(Quota(schedule="dream")).whole and Spaced(EntropyBound()).sample_spec == EntropyBound().sample_spec
