"""Quotas: the shares of Dream's schedule, and tokens that a constraint drops."""

from hypothesis import given, strategies as st

from dlstep.rules.quota import Quota, dream_shares
from dlstep.strategies.dual_cache import DualCache

from .constrained import ONE_PAIR, left_after_each_pass


@given(size=st.integers(1, 300), forwards=st.integers(1, 2000))
def test_the_shares_of_dream_are_those_of_its_schedule_without_zeros(size, forwards):
    left, shares = size, []
    for forward in range(forwards):
        before, after = (1 + (forward + more) * (0.001 - 1) / forwards for more in (0, 1))
        share = left if forward == forwards - 1 else int(left * (1 - after / before))
        left -= share
        shares.append(share)
    assert dream_shares(size, forwards) == tuple(share for share in shares if share)


def test_the_shares_of_very_many_forwards_are_found_at_once():
    assert sum(dream_shares(20, 10**12)) == 20


def test_dreams_schedule_makes_up_for_tokens_that_a_constraint_dropped():
    """The first pass drops the second of `aa`, so that the next one unmasks three."""
    assert dream_shares(8, 3) == (2, 2, 4)
    masked = left_after_each_pass(DualCache(cache="none", rule=Quota(3, "dream")), ONE_PAIR, 8)
    assert masked == [(1, 2, 3, 4, 5, 6, 7), (4, 5, 6, 7), ()]
