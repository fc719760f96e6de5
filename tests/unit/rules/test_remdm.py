"""ReMDM by hand."""

import pytest

from dlstep.core import SpanSamples
from dlstep.rules.remdm import ReMDM

from .by_hand import after, fresh, numbers, rows_of, shown


@pytest.mark.parametrize("count, chances, expected", rows_of("remdm"))
def test_rows_of_remdm(count, chances, expected):
    found = numbers(chances)
    rule = ReMDM(steps_per_block=1, remask_forwards=1, remask_count=int(count))
    assert shown(after(rule, fresh(len(found)), SpanSamples(tuple(range(len(found))), found))) == expected
