"""The rule of running confidences where it is another rule, and as its page says."""

import pytest

from dlstep.core import SpanSamples
from dlstep.rules.running_confidence import RunningConfidence

from .by_hand import after, fresh, numbers, rows_of, shown


@pytest.mark.parametrize("steps, chances, expected", rows_of("running_confidence"))
def test_rows_of_running_confidence(steps, chances, expected):
    found = numbers(chances)
    rule = RunningConfidence(int(steps))
    assert shown(after(rule, fresh(len(found)), SpanSamples(tuple(range(len(found))), found))) == expected
