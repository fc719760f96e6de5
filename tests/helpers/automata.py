"""The moves of automata over token ids, by state and class."""

from dlstep.core.automaton import members
from dlstep.testing.edges import edges_of


def rows_of(automaton):
    """The next state by class, for each state."""
    rows = [{} for _ in range(automaton.state_count)]
    for state, to, classes in edges_of(automaton):
        rows[state] |= dict.fromkeys(members(classes), to)
    return rows
