"""Edges as arrays give what their definition gives, whatever was read before."""

from hypothesis import given, strategies as st

from dlstep.core.automaton import ANY
from dlstep.testing.edges import PlainEdges
from dlstep.testing.generators import table_automaton
from dlstep.text.edges import WIDTH, ArrayEdges

from ...helpers.automata import rows_of

STATES, CLASSES = 20, 40  # more than two bytes of states, and more than a word of classes
MOVES = st.dictionaries(st.tuples(st.integers(0, STATES - 1), st.integers(1, CLASSES)), st.integers(0, STATES - 1), max_size=60)
# With the state after the end of an answer, which has no edges.
SETS = st.integers(0, (2 << STATES) - 1) | st.integers(0, STATES).map(lambda state: 1 << state)


@given(
    moves=MOVES,
    gap=st.just((2 << CLASSES) - 2) | st.integers(0, 2**CLASSES - 1).map(lambda bits: 2 * bits),
    reads=st.lists(st.tuples(SETS, st.just(ANY) | st.integers(0, CLASSES)), max_size=8),
    pairs=st.lists(st.tuples(SETS, SETS), max_size=WIDTH + 3),
)
def test_edges_as_arrays_are_those_of_the_definition(moves, gap, reads, pairs):
    rows = [{letter: to for (state, letter), to in moves.items() if state == here} for here in range(STATES)]
    automaton = table_automaton("drawn", range(CLASSES + 1), [0], rows)
    assert rows_of(automaton) == rows
    plain, arrays = PlainEdges(automaton, gap), ArrayEdges(automaton, gap)
    for states, letter in reads:
        assert arrays.after(states, letter) == plain.after(states, letter)
        assert arrays.before(states, letter) == plain.before(states, letter)
    assert arrays.classes(pairs) == plain.classes(pairs)
