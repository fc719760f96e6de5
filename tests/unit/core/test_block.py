"""Groups of positions: starts, ends and covers follow from the definition of a group."""

from hypothesis import given, strategies as st

from dlstep.core.block import Grid

MOST = 40


@given(origin=st.integers(0, 12), size=st.integers(1, 6), position=st.integers(0, MOST))
def test_bounds_follow_from_the_groups(origin, size, position):
    grid = Grid(origin, size)
    groups = [0 if place < origin else 1 + (place - origin) // size for place in range(MOST + size + origin + 1)]
    own = [place for place, group in enumerate(groups) if group == groups[position]]
    assert (grid.group(position), grid.start(position), grid.end(position)) == (groups[position], own[0], own[-1] + 1)
    boundaries = [place for place in range(len(groups)) if not place or groups[place] != groups[place - 1]]
    assert grid.cover(position) == next(boundary for boundary in boundaries if boundary >= position)
