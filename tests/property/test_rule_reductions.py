"""Rules that do not look at positions take rows that change places as before.

`dilated`, `spaced`, `local_leap`, `hierarchy` and quotas from the left or at random do look at them.
"""

import pytest
from hypothesis import given, strategies as st

from dlstep.core import Choice
from dlstep.rules.entropy_bound import EntropyBound
from dlstep.rules.factor import Factor
from dlstep.rules.quota import Quota
from dlstep.rules.threshold import Threshold

from ..unit.rules.single_forwards import forwards

BLIND: list[Choice] = [
    Threshold(0.6),
    Threshold(order="entropy"),
    Threshold(0.8, falling=0.4),
    Quota(3),
    Quota(3, order="margin"),
    Quota(3, order="entropy"),
    Quota(3, schedule="dream"),
    Quota(3, dynamic_threshold=0.5),
    Factor(1.5),
    EntropyBound(0.5),
    EntropyBound(0.5, order="confidence"),
    EntropyBound(0.5, order="margin"),
]


@pytest.mark.parametrize("rule", BLIND, ids=repr)
@given(data=st.data())
def test_rows_that_change_places_are_unmasked_as_before(rule: Choice, data: st.DataObject) -> None:
    forward = data.draw(forwards(distinct=True))
    order = data.draw(st.permutations(range(len(forward.left))))
    moved = forward.permuted(order)
    there = {forward.left[order[forward.left.index(offset)]] for offset in moved.chosen(rule)}
    assert there == set(forward.chosen(rule))
