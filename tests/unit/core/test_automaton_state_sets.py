"""Sets of states: their moves combine those of each state, also after the cache was cleared."""

from hypothesis import given, strategies as st

from dlstep.core.automaton import Moves, members, moved, sets_after, sets_before

STATES = 20  # more than two bytes of a bitmap
BITMAPS = st.integers(0, (1 << STATES) - 1)
TABLES = st.lists(st.dictionaries(st.integers(0, STATES - 1), BITMAPS), min_size=1, max_size=3)


@given(
    tables=TABLES,
    walks=st.lists(st.tuples(BITMAPS, st.lists(st.integers(0, 2), max_size=6)), max_size=5),
    most=st.integers(1, 4),
)
def test_moves_are_the_union_of_the_moves_of_each_state(tables, walks, most):
    """The number of cached moves is limited, including moves of sets in use that `Moves` no longer holds."""

    def step(bitmap, letter):
        union = 0
        for state in members(bitmap):
            union |= tables[letter % len(tables)].get(state, 0)
        return union

    moves, used = Moves(step, most), []
    for bitmap, letters in walks:
        assert moves.state_set(bitmap) is moves.state_set(bitmap)
        expected = [bitmap]
        for letter in letters:
            expected.append(step(expected[-1], letter))
        sets = sets_after(moves.state_set(bitmap), letters)
        assert [each.bitmap for each in sets] == expected
        assert [each.bitmap for each in sets_before(letters[::-1], moves.state_set(bitmap))] == expected[::-1]
        assert moved(used[0] if used and used[0].bitmap == bitmap else sets[0], letters).bitmap == expected[-1]
        used += sets
        assert sum(len(each) for each in {*used}) <= most


def test_sets_are_compared_by_identity():
    moves = Moves(lambda bitmap, letter: 1)
    one, other = moves.state_set(1), moves.state_set(2)
    assert one != other and len({one, other}) == 2 and one[0] is one
