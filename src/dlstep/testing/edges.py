"""The edges of an automaton in plain Python: the reference for faster implementations."""

from collections.abc import Sequence

from ..core.automaton import ANY, Automaton, Edges, bitmap_of


class PlainEdges(Edges):
    """The edges of a small automaton.

    Args:
        automaton: The automaton.
        gap: The bitmap of the classes that a gap may hold.
    """

    def __init__(self, automaton: Automaton, gap: int) -> None:
        rows = enumerate(automaton.edges)
        self._edges = [(state, target, classes & gap) for state, row in rows for target, classes in row if classes & gap]

    def after(self, states: int, letter: int) -> int:
        """Return the states that a letter leads to from any of `states`."""
        return bitmap_of([to for state, to, classes in self._edges if states >> state & 1 and _has(classes, letter)])

    def before(self, states: int, letter: int) -> int:
        """Return the states from which a letter leads to any of `states`."""
        return bitmap_of([state for state, to, classes in self._edges if states >> to & 1 and _has(classes, letter)])

    def classes(self, pairs: Sequence[tuple[int, int]]) -> list[int]:
        """Return, for each pair, the bitmap of the classes that lead from a state of the first set to one of the second set."""
        found = [0] * len(pairs)
        for place, (states, following) in enumerate(pairs):
            for state, to, classes in self._edges:
                if states >> state & following >> to & 1:
                    found[place] |= classes
        return found


def _has(classes: int, letter: int) -> bool:
    return letter == ANY or bool(classes >> letter & 1)
