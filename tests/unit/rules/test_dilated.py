"""The dilated rule: its levels part a block."""

from hypothesis import given, strategies as st

from dlstep.rules.dilated import Dilated, levels

from .single_forwards import Forward, forwards


@given(forward=forwards())
def test_one_stride_unmasks_all(forward: Forward) -> None:
    assert forward.chosen(Dilated(base=max(forward.size, 2))) == list(forward.left)


@given(size=st.integers(1, 300), base=st.integers(2, 5), skip=st.integers(0, 4))
def test_levels_part_a_block(size: int, base: int, skip: int) -> None:
    found = levels(size, base, skip)
    assert sorted(offset for level in found for offset in level) == list(range(size)) and all(found)
    if (base, skip) == (2, 1):
        assert len(found) <= (size - 1).bit_length() + 1


def test_a_block_of_eight_has_three_levels() -> None:
    assert [sorted(level) for level in levels(8, 2, 1)] == [[0, 4], [2, 6], [1, 3, 5, 7]]
