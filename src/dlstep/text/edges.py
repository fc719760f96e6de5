"""The edges of an automaton as arrays.

Sets of states are bitmaps. A few operations read all edges at once. The masks of up to 32 positions are
computed together: each position has a bit in the word of each state.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..core.automaton import ANY, Automaton, Edges, label_words, remember

Ints = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]
WIDTH = 32  # pairs of sets that are read together
MOST_LETTERS = 128  # whose edges are cached


class ArrayEdges(Edges):
    """The edges of a large automaton (`Edges`).

    Args:
        automaton: The automaton.
        gap: The bitmap of the classes that a gap may hold.
    """

    def __init__(self, automaton: Automaton, gap: int) -> None:
        _, sizes, _, words, *edges = [np.frombuffer(each, np.int32) for each in automaton.arrays]
        size, self._states = 4 * label_words(len(sizes)), automaton.state_count
        self._labels: Bytes = words.view(np.uint8).reshape(-1, size) & _packed(gap, size)
        self._in_gaps = np.bitwise_or.reduce(self._labels, axis=1) != 0
        self._all_in_gaps = bool(self._in_gaps.all())  # False if all ids of some label end the answer
        self._next, self._previous = _Neighbors(*edges[:2]), _Neighbors(*edges[2:4])
        self._starts, *self._ends = edges[4:]  # where the edges of each label begin, their sources and their targets
        self._of_letters: dict[int, list[Ints]] = {}
        # The same edges by source: their labels and targets.
        self._from, order = edges[0], np.argsort(self._ends[0], kind="stable")
        self._labels_from = np.repeat(np.arange(len(self._labels), dtype=np.int32), np.diff(self._starts))[order]
        self._targets_from = self._ends[1][order]

    def after(self, states: int, letter: int) -> int:
        """Return the states that a letter leads to from any of `states`."""
        state = states.bit_length() - 1
        if letter != ANY and 0 <= state < self._states and states == 1 << state:  # a single state has few edges
            edges = slice(*self._from[state : state + 2])
            hits = self._targets_from[edges][self._labels[self._labels_from[edges], letter >> 3] >> (letter & 7) & 1 != 0]
            return 1 << int(hits[0]) if len(hits) else 0
        return self._step(states, letter, self._next, slice(None))

    def before(self, states: int, letter: int) -> int:
        """Return the states from which a letter leads to any of `states`."""
        return self._step(states, letter, self._previous, slice(None, None, -1))

    def _step(self, states: int, letter: int, neighbors: "_Neighbors", order: slice) -> int:
        flags = np.unpackbits(_packed(states, self._states // 8 + 1), count=self._states, bitorder="little")
        if letter == ANY and self._all_in_gaps:
            return neighbors.union(flags)
        here, there = self._of_letter(letter)[order]
        reached = np.zeros(self._states, np.uint8)
        reached[there[flags.take(here).view(np.bool_)]] = 1
        return _bitmap(reached)

    def _of_letter(self, letter: int) -> list[Ints]:
        """Return the sources and the targets of the edges with a letter."""
        known = self._of_letters.get(letter)
        if known is None:
            bits = self._in_gaps if letter == ANY else self._labels[:, letter >> 3] & 1 << (letter & 7)
            labels = np.flatnonzero(bits)
            places = ranges(starts := self._starts[labels], self._starts[labels + 1] - starts)
            known = [each[places] for each in self._ends]
            remember(self._of_letters, letter, known, MOST_LETTERS)
        return known

    def classes(self, pairs: Sequence[tuple[int, int]]) -> list[int]:
        """Return, for each pair, the bitmap of the classes that lead from a state of the first set to one of the second set."""
        found: list[int] = []
        for first in range(0, len(pairs), WIDTH):
            part = pairs[first : first + WIDTH]
            words = self._words([states for states, _ in part]).take(self._ends[0])
            words &= self._words([following for _, following in part]).take(self._ends[1])
            of_label = np.bitwise_or.reduceat(words, self._starts[:-1])
            for place in range(len(part)):
                rows = self._labels[of_label >> place & 1 != 0]
                found.append(int.from_bytes(np.bitwise_or.reduce(rows, axis=0).tobytes(), "little"))
        return found

    def _words(self, sets: Sequence[int]) -> npt.NDArray[Any]:
        """Return an unsigned integer for each state, whose bit i is set if the state is in the i-th set."""
        groups, size = max(1, (1 << (len(sets) - 1).bit_length()) // 8), self._states // 8 + 1
        rows = np.zeros((8 * groups, size), np.uint8)
        for row, states in zip(rows, sets, strict=False):
            row[:] = _packed(states, size)
        # Transposes 8 x 8 bits at a time (Warren, Hacker's Delight, 7-3): copying single bits takes ten times as long.
        bits = rows.reshape(groups, 8, size).transpose(0, 2, 1).copy().view(np.uint64)[..., 0]
        for shift, mask in ((7, 0x00AA00AA00AA00AA), (14, 0x0000CCCC0000CCCC), (28, 0x00000000F0F0F0F0)):
            swapped = (bits ^ bits >> shift) & mask
            bits = bits ^ swapped ^ swapped << shift
        return bits.view(np.uint8).T.copy().view(f"u{groups}")[:, 0]


class _Neighbors:
    """Edges in one direction: those of state s lead to `others[starts[s]:starts[s + 1]]`.

    Consecutive sets differ in few states. So the number of edges that lead to each state is kept, and only the edges of
    states that differ are counted again.
    """

    def __init__(self, starts: Ints, others: Ints) -> None:
        self._starts, self._degrees, self._others = starts[:-1], np.diff(starts), others
        count = len(starts) - 1
        self._nothing = np.zeros(count, np.uint8), np.zeros(count)
        self._last = self._nothing  # flags of a set, and the number of edges from it to each state

    def union(self, flags: Bytes) -> int:
        """Return the bitmap of the states with an edge from a state whose flag is set."""
        last, counts = self._last
        changed = np.flatnonzero(flags != last)
        if 2 * len(changed) > len(flags):
            (last, counts), changed = self._nothing, np.flatnonzero(flags)
        sizes = self._degrees[changed]
        others = self._others[ranges(self._starts[changed], sizes)]
        signs = np.repeat(np.where(flags[changed], 1.0, -1.0), sizes)
        counts = counts + np.bincount(others, signs, len(flags))
        self._last = flags, counts  # one assignment, because several threads may read a constraint
        return _bitmap(counts > 0)


def ranges(starts: npt.NDArray[np.integer], sizes: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
    """Return the numbers of several ranges, one range after the other, given where each begins and its size."""
    shifts = np.repeat(starts - np.cumsum(sizes) + sizes, sizes)
    return shifts + np.arange(len(shifts))


def _packed(bitmap: int, size: int) -> Bytes:
    return np.frombuffer(bitmap.to_bytes(size, "little"), np.uint8)


def _bitmap(flags: Bytes | Flags) -> int:
    return int.from_bytes(np.packbits(flags, bitorder="little").tobytes(), "little")
