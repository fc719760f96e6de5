"""Early commits at the ends of their options are another rule."""

from hypothesis import given, strategies as st

from dlstep.core import Request
from dlstep.rules.early_commit import EarlyCommit
from dlstep.rules.quota import Quota
from dlstep.strategies.dual_cache import DualCache

from .random_rows import REQUESTS, SALTS, answered


@given(request=REQUESTS, salt=SALTS, size=st.integers(1, 9), steps=st.one_of(st.none(), st.integers(1, 5)))
def test_early_commit_without_gaps_is_quota(request: Request, salt: int, size: int, steps: int | None) -> None:
    rule = EarlyCommit(None, None, None, part_size=size, inner=Quota(steps))
    parts = answered(DualCache(cache="none", rule=rule), request, salt)
    assert parts == answered(DualCache(size, "none", Quota(steps)), request, salt)


@given(request=REQUESTS, salt=SALTS)
def test_early_commit_with_no_gap_due_unmasks_all_at_once(request: Request, salt: int) -> None:
    rule = EarlyCommit(0.0, 0.0, 0.0)
    assert answered(DualCache(cache="none", rule=rule), request, salt)[2] == 1
