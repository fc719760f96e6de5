"""Saber by hand, and forwards in which it takes nothing back."""

import pytest

from dlstep.core import SpanSamples
from dlstep.rules.saber import Saber

from .by_hand import after, fresh, numbers, rows_of, shown


@pytest.mark.parametrize("least, chances, expected", rows_of("saber"))
def test_rows_of_saber(least, chances, expected):
    found = numbers(chances)
    assert shown(after(Saber(int(least)), fresh(len(found)), SpanSamples(tuple(range(len(found))), found))) == expected
