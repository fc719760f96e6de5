"""Early commits at the ends of their options are another rule."""

from dataclasses import replace

from hypothesis import given, strategies as st

from dlstep.rules.early_commit import EarlyCommit
from dlstep.rules.quota import Quota
from dlstep.strategies.dual_cache import DualCache

from .constrained import ONLY_A, PAIRS, TRIPLES, left_after_each_pass
from .random_rows import REQUESTS, SALTS, answered


@given(request=REQUESTS, salt=SALTS, size=st.integers(1, 4), steps=st.integers(1, 4), count=st.integers(0, 19))
def test_a_part_may_begin_early_because_those_before_it_are_pinned(request, salt, size, steps, count):
    pinned = tuple([(offset, 1) for offset in range(min(count, request.params.max_tokens))])
    request = replace(request, params=replace(request.params, pinned=pinned))
    rule = EarlyCommit(None, None, None, part_size=size, inner=Quota(steps, "dream"))
    answer, _, _ = answered(DualCache(cache="none", rule=rule), request, salt)
    assert answer[: len(pinned)] == (1,) * len(pinned)


def test_a_position_with_one_possible_token_is_no_evidence():
    """Its gap is infinite whatever the network computes: an answer of such positions is decoded by the schedule."""
    rule = EarlyCommit(1.0, 1.0, 1.0, part_size=2)
    assert left_after_each_pass(DualCache(cache="none", rule=rule), ONLY_A, 4) == [(1, 2, 3), (2, 3), (3,), ()]


def test_the_schedule_of_a_part_begins_after_the_late_passes_of_earlier_ones():
    """Both pairs of the first part propose `aa`, which takes it a third pass; the second part has its own two and one more."""
    rule = EarlyCommit(None, None, None, part_size=4, inner=Quota(2, "dream"))
    assert left_after_each_pass(DualCache(cache="none", rule=rule), PAIRS, 8) == [
        (1, 2, 3, 4, 5, 6, 7),
        (3, 4, 5, 6, 7),
        (4, 5, 6, 7),
        (5, 6, 7),
        (7,),
        (),
    ]


@given(seed=st.integers(0, 1 << 30))
def test_passes_of_parts_that_began_late_lower_the_measure(seed):
    """A part may take two late passes (`aaa`, `bb`, `c`); then a later one may unmask nothing in its first pass."""
    rule = EarlyCommit(None, None, None, part_size=3, inner=Quota(2, "dream", "independent"))
    assert left_after_each_pass(DualCache(cache="none", rule=rule), TRIPLES, 15, seed)[-1] == ()
