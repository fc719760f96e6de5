"""The dilated rule: its levels part a block."""

from hypothesis import given, strategies as st

from dlstep.rules.dilated import levels


@given(size=st.integers(1, 300), base=st.integers(2, 5), skip=st.integers(0, 4))
def test_levels_part_a_block(size, base, skip):
    found = levels(size, base, skip)
    assert sorted(offset for level in found for offset in level) == list(range(size)) and all(found)
    if (base, skip) == (2, 1):
        assert len(found) <= (size - 1).bit_length() + 1
