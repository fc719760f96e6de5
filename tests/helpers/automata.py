"""Random automata over bytes, and the moves of automata over token ids, by state and class."""

from hypothesis import strategies as st

from dlstep.core.automaton import members
from dlstep.testing.edges import edges_of
from dlstep.text.dfa import Dfa


@st.composite
def byte_automata(draw):
    """Automata of up to five states over a and b; a state may lack a move, or lead nowhere."""
    states = draw(st.integers(1, 5))
    target = st.none() | st.integers(0, states - 1)
    rows = [tuple((letter, letter, to) for letter in b"ab" if (to := draw(target)) is not None) for _ in range(states)]
    return Dfa(tuple(rows), draw(st.frozensets(st.integers(0, states - 1), min_size=1)))


def rows_of(automaton):
    """The next state by class, for each state."""
    rows = [{} for _ in range(automaton.state_count)]
    for state, to, classes in edges_of(automaton):
        rows[state] |= dict.fromkeys(members(classes), to)
    return rows
