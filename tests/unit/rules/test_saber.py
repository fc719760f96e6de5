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


def test_saber_by_hand() -> None:
    """The mean confidence of unmasked tokens is the threshold; what lost most is remasked; its value stays in the mean."""
    rule, block = Saber(least_taken=2), fresh(7)
    block = after(rule, block, SpanSamples((10, 11, 12, 13, 14, 15, 16), (0.5, 0.8, 0.6, 0.7, 0.1, 0.2, 0.1)))
    assert shown(block) == "_ 11 _ _ _ _ _"  # 0.8 and 0.7 were unmasked; 0.7 gained less than 0.8
    assert block.extra == Confidences((-1.0, 0.8, -1.0, 0.7, -1.0, -1.0, -1.0), (0.5, 0.8, 0.6, 0.7, 0.1, 0.2, 0.1))
    block = after(rule, block, SpanSamples((20, 21, 22, 23, 24, 25, 26), (0.76, 0.1, 0.77, 0.9, 0.75, 0.3, 0.1)), 2)
    assert shown(block) == "20 _ 22 23 _ _ _"  # the mean is 0.75, which is not above itself; 11 fell by 0.7
    # 11's 0.8 is in the mean of 0.8075 still, which 34 is above.
    block = after(rule, block, SpanSamples((30, 31, 32, 33, 34, 35, 36), (0.2, 0.9, 0.3, 0.4, 0.809, 0.9, 0.1)), 3)
    assert shown(block) == "_ 31 22 23 34 35 _"
    block = after(rule, block, SpanSamples((40, 41, 42, 43, 44, 45, 46), (0.1, 0.9, 0.3, 0.4, 0.8, 0.9, 0.1)), 4)
    assert shown(block) == "40 31 22 23 34 35 46"
    assert block.extra is None


@pytest.mark.parametrize(("least", "chances", "expected"), rows_of("saber"))
def test_rows_of_saber(least: str, chances: str, expected: str) -> None:
    found = numbers(chances)
    assert shown(after(Saber(int(least)), fresh(len(found)), SpanSamples(tuple(range(len(found))), found))) == expected
