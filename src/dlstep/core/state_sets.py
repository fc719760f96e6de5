"""Sets of states of an automaton, and the moves between them.

Decoding under a constraint reads windows with gaps, so the automaton may be in any of several states.
The same few sets of states occur repeatedly, so each set is one object that caches where letters
lead from it.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import reduce
from itertools import accumulate
from operator import getitem
from typing import TypeVar

from .automaton import bitmap_of, members

Key = TypeVar("Key")
Result = TypeVar("Result")

MOST_KEPT = 1 << 13  # entries of a cache, up to 0.5 kB each; a full cache is cleared


class StateSet(dict[int, "StateSet"]):
    """A set of states, and a mapping from each letter to the set that the letter leads to.

    `Moves` computes an entry when it is first used. Sets are compared and hashed by identity, which
    makes them fast keys. Equal sets are the same object as long as `Moves` caches it.
    """

    __slots__ = ("_moves", "bitmap")
    __hash__ = object.__hash__  # type: ignore[assignment]
    __eq__ = object.__eq__
    __ne__ = object.__ne__

    def __init__(self, bitmap: int, moves: "Moves") -> None:
        self.bitmap, self._moves = bitmap, moves

    def __missing__(self, letter: int) -> "StateSet":
        return self._moves.add(self, letter)


class Moves:
    """The moves between sets of states in one direction: to next states or to previous states.

    `by_letter` returns, for a letter and a state, the states that the letter leads to.
    """

    def __init__(self, by_letter: Callable[[int, int], Collection[int]]) -> None:
        self._by_letter, self._count = by_letter, 0
        self._sets: dict[int, StateSet] = {}
        self._filled: list[StateSet] = []  # sets with entries, including sets in use that `_sets` no longer holds
        self._eight: dict[tuple[int, int, int], int] = {}

    def set_of(self, bitmap: int) -> StateSet:
        """Return the set of the states in `bitmap`."""
        known = self._sets.get(bitmap)
        if known is None:
            known = self._sets[bitmap] = StateSet(bitmap, self)
        return known

    def add(self, states: StateSet, letter: int) -> StateSet:
        """Return the set that `letter` leads to from any of `states`, and cache it."""
        if self._count == MOST_KEPT:  # sets in use stay valid: their moves are computed again
            for filled in self._filled:
                filled.clear()
            self._filled, self._sets, self._count = [], {}, 0
        if not states:
            self._filled.append(states)
        self._count += 1
        reached = states[letter] = self.set_of(self._union(states.bitmap, letter))
        return reached

    def _union(self, states: int, letter: int) -> int:
        """Return the bitmap of the states that `letter` leads to from any of `states`.

        A set may have thousands of states, so the result is combined from cached results for each byte
        of the bitmap (eight states).
        """
        union = 0
        for place, byte in enumerate(states.to_bytes(-(-states.bit_length() // 8), "little")):
            if byte:
                known = self._eight.get((letter, place, byte))
                if known is None:
                    known = bitmap_of({state for bit in members(byte) for state in self._by_letter(letter, 8 * place + bit)})
                    remember(self._eight, (letter, place, byte), known)
                union |= known
        return union


def moved(states: StateSet, letters: Iterable[int]) -> StateSet:
    """Return the set that the letters lead to, read one after the other."""
    return reduce(getitem, letters, states)


def sets_after(states: StateSet, letters: Iterable[int]) -> list[StateSet]:
    """Return the set before each letter and the set after the last one; `states` is the set before the first letter."""
    return list(accumulate(letters, getitem, initial=states))


def sets_before(letters: Sequence[int], states: StateSet) -> list[StateSet]:
    """Return the set before each letter and the set after the last one, which is `states`; letters are read backwards."""
    return list(accumulate(reversed(letters), getitem, initial=states))[::-1]


def remember(memory: dict[Key, Result], key: Key, result: Result, most: int = MOST_KEPT) -> None:
    """Add a result to a cache. A full cache is cleared first, which needs no bookkeeping at each lookup."""
    if len(memory) >= most:
        memory.clear()
    memory[key] = result
