"""The rule of running confidences where it is another rule, and as its page says."""

import pytest
from hypothesis import given, strategies as st

from dlstep.core import Request, SpanSamples
from dlstep.rules.quota import Quota
from dlstep.rules.running_confidence import RunningConfidence
from dlstep.strategies.dual_cache import DualCache

from .by_hand import REQUESTS, SALTS, STEPS, after, answered, carriers, fresh, numbers, rows_of, shown


@given(request=REQUESTS, salt=SALTS, size=st.integers(1, 9), steps=STEPS)
def test_running_confidence_with_constant_confidences_is_quota(
    request: Request, salt: int, size: int, steps: int | None
) -> None:
    """The two schedules round otherwise, so that they take equally many forwards where nothing is rounded."""
    pairs = zip(carriers(size, RunningConfidence(steps)), carriers(size, Quota(steps)), strict=True)
    for one, other in pairs:
        *found, forwards = answered(one, request, salt, constant=True)
        *expected, least = answered(other, request, salt, constant=True)
        assert found == expected and (forwards == least or steps not in (None, 1))


@given(request=REQUESTS, salt=SALTS, size=st.integers(1, 9), steps=STEPS)
def test_running_confidence_with_one_segment_is_that_of_one_block(
    request: Request, salt: int, size: int, steps: int | None
) -> None:
    length = request.params.max_tokens
    whole = DualCache(size, "none", RunningConfidence(steps, segment_size=length))
    assert answered(whole, request, salt) == answered(DualCache(length, "none", RunningConfidence(steps)), request, salt)


@pytest.mark.parametrize(("steps", "chances", "expected"), rows_of("running_confidence"))
def test_rows_of_running_confidence(steps: str, chances: str, expected: str) -> None:
    found = numbers(chances)
    rule = RunningConfidence(int(steps))
    assert shown(after(rule, fresh(len(found)), SpanSamples(tuple(range(len(found))), found))) == expected
