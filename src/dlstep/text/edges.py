"""The edges of an automaton as arrays.

Sets of states are bitmaps, and a few operations on all edges at once read them. The masks of up to 32 positions are
computed together: each position has a bit in the word of each state.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..core.automaton import ANY, Automaton, label_words, remember

Ints = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]
WIDTH = 32  # pairs of sets that are read together
MOST_LETTERS = 128  # whose edges are cached


class ArrayEdges:
    """The edges of a large automaton (`Edges`).

    Args:
        automaton: The automaton.
        gap: The bitmap of the classes that a gap may hold.
    """

    def __init__(self, automaton: Automaton, gap: int) -> None:
        _, sizes, _, words, *edges = [np.frombuffer(each, np.int32) for each in automaton.arrays]
        size, self._states = 4 * label_words(len(sizes)), automaton.state_count
        self._labels: Bytes = words.view(np.uint8).reshape(-1, size) & _packed(gap, size)
        kept = np.bitwise_or.reduce(self._labels, axis=1) != 0
        if not kept.all():  # some classes have only ids that end the answer
            starts, sources, targets = edges[4:]
            labels = np.repeat(np.where(kept, np.cumsum(kept, dtype=np.int32) - 1, -1), np.diff(starts))
            places, self._labels = np.flatnonzero(labels >= 0), self._labels[kept]
            edges = edges_by(sources[places], targets[places], labels[places], self._states, len(self._labels))
        self._next, self._previous = _Neighbors(*edges[:2]), _Neighbors(*edges[2:4])
        self._starts, self._sources, self._targets = edges[4:]  # by label
        self._of_letters: dict[int, tuple[Ints, Ints]] = {}

    def after(self, states: int, letter: int) -> int:
        """Return the states that a letter leads to from any of `states`."""
        if letter == ANY:
            return self._next.union(self._flags(states))
        sources, targets = self._of_letter(letter)
        return self._step(states, sources, targets)

    def before(self, states: int, letter: int) -> int:
        """Return the states from which a letter leads to any of `states`."""
        if letter == ANY:
            return self._previous.union(self._flags(states))
        sources, targets = self._of_letter(letter)
        return self._step(states, targets, sources)

    def _step(self, states: int, here: Ints, there: Ints) -> int:
        """Return the states `there` of those edges whose states `here` are in a set."""
        reached = np.zeros(self._states, np.uint8)
        reached[there[self._flags(states).take(here).view(np.bool_)]] = 1
        return _bitmap(reached)

    def _of_letter(self, letter: int) -> tuple[Ints, Ints]:
        """Return the sources and the targets of the edges with a letter."""
        known = self._of_letters.get(letter)
        if known is None:
            labels = np.flatnonzero(self._labels[:, letter >> 3] >> (letter & 7) & 1)
            starts = self._starts
            places = np.concatenate([np.arange(0), *[np.arange(starts[label], starts[label + 1]) for label in labels]])
            known = self._sources[places], self._targets[places]
            remember(self._of_letters, letter, known, MOST_LETTERS)
        return known

    def classes(self, pairs: Sequence[tuple[int, int]]) -> list[int]:
        """Return, for each pair, the bitmap of the classes that lead from a state of the first set to one of the second set."""
        found: list[int] = []
        for first in range(0, len(pairs), WIDTH):
            part = pairs[first : first + WIDTH]
            words = self._words([states for states, _ in part]).take(self._sources)
            words &= self._words([following for _, following in part]).take(self._targets)
            of_label = np.bitwise_or.reduceat(words, self._starts[:-1])
            for place in range(len(part)):
                rows = self._labels[of_label >> place & 1 != 0]
                found.append(int.from_bytes(np.bitwise_or.reduce(rows, axis=0).tobytes(), "little"))
        return found

    def _flags(self, states: int) -> Bytes:
        """Return whether each state is in a set."""
        size = self._states // 8 + 1  # a byte more than needed, for the state after the end of an answer
        return np.unpackbits(_packed(states, size), count=self._states, bitorder="little")

    def _words(self, sets: Sequence[int]) -> npt.NDArray[Any]:
        """Return an unsigned integer for each state, whose bit i is set if the state is in the i-th set."""
        groups, size = max(1, (1 << (len(sets) - 1).bit_length()) // 8), self._states // 8 + 1
        rows = np.zeros((8 * groups, size), np.uint8)
        for row, states in zip(rows, sets, strict=False):
            row[:] = _packed(states, size)
        # Transposes 8 x 8 bits at a time (Warren, Hacker's Delight, 7-3): a copy of single bits takes ten times as long.
        bits = rows.reshape(groups, 8, size).transpose(0, 2, 1).copy().view(np.uint64)[..., 0]
        for shift, mask in ((7, 0x00AA00AA00AA00AA), (14, 0x0000CCCC0000CCCC), (28, 0x00000000F0F0F0F0)):
            swapped = (bits ^ bits >> shift) & mask
            bits = bits ^ swapped ^ swapped << shift
        return bits.view(np.uint8).T.copy().view(f"u{groups}")[:, 0]


class _Neighbors:
    """Edges in one direction: those of state s lead to `others[starts[s]:starts[s + 1]]`.

    Sets that are read one after the other differ in few states. So the number of edges that lead to each state is kept, and
    only the edges of states that differ are counted again.
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
        places = np.repeat(self._starts[changed] - np.cumsum(sizes) + sizes, sizes)
        others = self._others[places + np.arange(len(places))]
        signs = np.repeat(np.where(flags[changed], 1.0, -1.0), sizes)
        counts = counts + np.bincount(others, signs, len(flags))
        self._last = flags, counts  # at once, as several threads may read one constraint
        return _bitmap(counts > 0)


def edges_by(sources: Ints, targets: Ints, labels: Ints, states: int, count: int) -> list[Ints]:
    """Return edges by source, by target and by label, as `Automaton.arrays` describes them; `count` is that of labels."""
    by_label = _grouped(labels, count, sources, targets)
    return [*_grouped(sources, states, targets), *_grouped(targets, states, sources), *by_label]


def _grouped(keys: Ints, count: int, *others: Ints) -> list[Ints]:
    """Return where the edges of each of `count` keys begin, and `others` in this order."""
    order = np.argsort(keys, kind="stable")
    return [np.searchsorted(keys[order], np.arange(count + 1)).astype(np.int32), *[each[order] for each in others]]


def _packed(bitmap: int, size: int) -> Bytes:
    return np.frombuffer(bitmap.to_bytes(size, "little"), np.uint8)


def _bitmap(flags: Bytes | Flags) -> int:
    return int.from_bytes(np.packbits(flags, bitorder="little").tobytes(), "little")
