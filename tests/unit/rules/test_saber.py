"""Saber by hand, and forwards in which it takes nothing back."""

import pytest
from hypothesis import given, strategies as st

from dlstep.core import SpanSamples
from dlstep.rules.saber import Confidences, Saber

from .by_hand import after, fresh, numbers, rows_of, shown


@given(chances=st.lists(st.integers(0, 10), min_size=1, max_size=9), mean=st.integers(0, 10))
def test_saber_remasks_nothing_in_a_pass_that_unmasks_one(chances: list[int], mean: int) -> None:
    """With `least_taken=1` one position may be unmasked, and then no token is remasked."""
    rule, size = Saber(least_taken=1), len(chances)
    rows = SpanSamples(tuple(range(size)), tuple(chance / 10 for chance in chances))
    first = fresh(size).unmask((1,), (7,), (mean / 10,)).with_extra(
        Confidences((mean / 10, *[-1.0] * (size - 1)), (1.0,) * size)
    )  # fmt: skip
    if not first.masked:
        return
    block = after(rule, first, rows, 2)
    above = sum(chance > mean for chance in chances[1:])
    if above <= 1:
        assert len(block.masked) == len(first.masked) - 1
        assert block.tokens[0] == 7
    elif block.masked:
        assert len(block.masked) == len(first.masked) - above + -(-above // 8)


@pytest.mark.parametrize(("least", "chances", "expected"), rows_of("saber"))
def test_rows_of_saber(least: str, chances: str, expected: str) -> None:
    found = numbers(chances)
    assert shown(after(Saber(int(least)), fresh(len(found)), SpanSamples(tuple(range(len(found))), found))) == expected
