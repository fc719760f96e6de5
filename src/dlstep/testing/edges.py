"""The edges of an automaton in plain Python: the reference for faster implementations."""

from collections.abc import Sequence
from itertools import pairwise

from ..core.automaton import ANY, Automaton, Edges, bitmap_of, label_words


def edges_of(automaton: Automaton) -> list[tuple[int, int, int]]:
    """Return the edges of an automaton: a state, a next state, and the bitmap of the classes that lead to it."""
    size, labels = 4 * label_words(len(automaton.sizes)), automaton.arrays[3].tobytes()
    starts, sources, targets = automaton.arrays[8:]
    found = list[tuple[int, int, int]]()
    for label, (begin, end) in enumerate(pairwise(starts)):
        classes = int.from_bytes(labels[size * label : size * (label + 1)], "little")
        found += [(sources[edge], targets[edge], classes) for edge in range(begin, end)]
    return found


class PlainEdges(Edges):
    """The edges of a small automaton.

    Args:
        automaton: The automaton.
        gap: The bitmap of the classes that a gap may hold.
    """

    def __init__(self, automaton: Automaton, gap: int) -> None:
        self._edges = [(state, to, classes & gap) for state, to, classes in edges_of(automaton) if classes & gap]

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
