"""Deterministic automata over token ids, which define the languages of constrained answers.

An automaton reads classes of ids rather than ids: ids with the same move in every state share a
class. A tokenizer has 100,000 ids, but they form only a few thousand classes. So the table of moves
fits into memory, and a bitmap of classes describes a set of allowed ids.

Decoding under a constraint reads windows with gaps, so the automaton may be in any of several
states. The same few sets of states occur repeatedly, so each set is one object that caches where
letters lead from it.
"""

from array import array
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from hashlib import blake2b
from itertools import accumulate, pairwise
from operator import getitem
from typing import TypeVar
from weakref import WeakValueDictionary

from .errors import DlstepError

Key = TypeVar("Key")
Result = TypeVar("Result")

MOST_KEPT = 1 << 13  # entries of a cache, up to 0.5 kB each; a full cache is cleared


ANY = -1  # the letter of a gap


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

    `step` returns, for the bitmap of a set and a letter, the bitmap of the states that the letter
    leads to. At most `most` results are cached.
    """

    def __init__(self, step: Callable[[int, int], int], most: int = MOST_KEPT) -> None:
        self._step, self._most, self._count = step, most, 0
        self._sets: dict[int, StateSet] = {}
        self._filled: list[StateSet] = []  # sets with entries, including sets in use that `_sets` no longer holds

    def state_set(self, bitmap: int) -> StateSet:
        """Return the set of the states in `bitmap`."""
        known = self._sets.get(bitmap)
        if known is None:
            known = self._sets[bitmap] = StateSet(bitmap, self)
        return known

    def add(self, states: StateSet, letter: int) -> StateSet:
        """Return the set that `letter` leads to from any of `states`, and cache it."""
        if self._count >= self._most:  # sets in use stay valid: their moves are computed again
            for filled in self._filled:
                filled.clear()
            self._filled, self._sets, self._count = [], {}, 0
        if not states:
            self._filled.append(states)
        self._count += 1
        reached = states[letter] = self.state_set(self._step(states.bitmap, letter))
        return reached


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


DIGEST_SIZE = 16
PARTS = 11  # arrays in the tables of an automaton


class Edges:
    """The edges of an automaton, for sets of states. Sets are bitmaps; they may contain states without edges.

    This class has no edges: it serves automata that only name sets of ids, or that were read from a trace without their
    tables. `dlstep.testing` has the reference in plain Python; `dlstep.text` has an implementation for large automata.

    Args:
        automaton: The automaton.
        gap: The bitmap of the classes that a gap may hold.
    """

    def __init__(self, automaton: "Automaton", gap: int) -> None:
        pass

    def after(self, states: int, letter: int) -> int:
        """Return the states that a letter leads to from any of `states`."""
        return 0

    def before(self, states: int, letter: int) -> int:
        """Return the states from which a letter leads to any of `states`."""
        return 0

    def classes(self, pairs: Sequence[tuple[int, int]]) -> list[int]:
        """Return, for each pair, the bitmap of the classes that lead from a state of the first set to one of the second set."""
        return [0] * len(pairs)


EdgesOf = Callable[["Automaton", int], Edges]  # builds them, given the bitmap of the classes that gaps may hold


@dataclass(frozen=True)  # without slots, because cached properties need a `__dict__`
class Automaton:
    """A deterministic automaton over token ids. Its first state is 0.

    `source` describes the language in messages and traces. `digest` identifies the automaton: equal
    digests mean equal tables. Only these two fields are compared and written to traces.

    `tables` has the digest and, as native 32-bit integers, the lengths and the contents of `arrays`.
    Passing bytes between processes is fast.
    """

    source: str
    digest: bytes = field(repr=False)
    tables: bytes = field(default=b"", compare=False, repr=False)
    edges_of: EdgesOf = field(default=Edges, compare=False, repr=False)
    """Builds the edges that decoding reads."""

    @classmethod
    def of(cls, source: str, tables: bytes, edges_of: EdgesOf) -> "Automaton":
        """Return the automaton with these tables: the same object while an equal one is in use."""
        made = cls(source, tables[:DIGEST_SIZE], tables, edges_of)
        # Equal tables may have another source, such as an equivalent regex: then both automata are kept.
        return _KNOWN.setdefault((source, made.digest), made)

    def __reduce__(self) -> tuple[object, ...]:
        return Automaton, (self.source, self.digest, self.tables, self.edges_of)

    @property
    def loaded(self) -> "Automaton":
        """The automaton with its tables; an automaton that was read from a trace has none.

        Raises DlstepError if this process has not compiled the automaton.
        """
        if self.tables:
            return self
        if (known := _KNOWN.get((self.source, self.digest))) is None:
            raise DlstepError(f"the constraint {self.source} is recorded without its tables: compile it first")
        return known

    @cached_property
    def arrays(self) -> list[memoryview]:
        """The arrays of the tables.

        They are:

        - the class of each id, the number of ids of each class, and the accepting states;
        - the labels of edges. A label is a set of classes, as a bitmap in little-endian bytes. There
          are few labels, because many edges have the same one;
        - where the edges from each state begin, and their targets;
        - where the edges to each state begin, and their sources;
        - where the edges of each label begin, their sources and their targets.
        """
        view = memoryview(self.tables)[DIGEST_SIZE:].cast("i")
        return [view[begin:end] for begin, end in pairwise(accumulate(view[:PARTS], initial=PARTS))]

    @property
    def vocab_size(self) -> int:
        """The number of ids in the vocabulary."""
        return len(self.class_of)

    @property
    def class_of(self) -> memoryview:
        """The class of each id; ids of class 0 occur in no string of the language."""
        return self.arrays[0]

    @property
    def sizes(self) -> Sequence[int]:
        """The number of ids of each class."""
        return self.arrays[1]

    @cached_property
    def accepting(self) -> int:
        """The bitmap of the accepting states. Every state can reach one of them."""
        return bitmap_of(self.arrays[2])

    @property
    def state_count(self) -> int:
        """The number of states."""
        return len(self.arrays[4]) - 1

    def accepts(self, tokens: Sequence[int]) -> bool:
        """Return whether this string of ids is in the language."""
        edges, states = self.edges_of(self, (1 << len(self.sizes)) - 1), 1
        for token in tokens:
            if not states:
                break
            states = edges.after(states, self.class_of[token])
        return bool(states & self.accepting)


# Automata of this process by source and digest, so that traces need not store their tables.
_KNOWN: "WeakValueDictionary[tuple[str, bytes], Automaton]" = WeakValueDictionary()


_BITS = tuple(tuple(bit for bit in range(8) if byte >> bit & 1) for byte in range(256))


def members(bitmap: int) -> list[int]:
    """Return the numbers whose bits are set, ascending."""
    packed = bitmap.to_bytes(-(-bitmap.bit_length() // 8), "little")
    return [8 * place + bit for place, byte in enumerate(packed) if byte for bit in _BITS[byte]]


def bitmap_of(numbers: Collection[int]) -> int:
    """Return the bitmap whose set bits are `numbers`. This takes time linear in its size, unlike a sum of powers."""
    packed = bytearray(max(numbers, default=0) // 8 + 1)
    for number in numbers:
        packed[number // 8] |= 1 << number % 8
    return int.from_bytes(packed, "little")


def label_words(classes: int) -> int:
    """Return the number of 32-bit words of a label, given the number of classes."""
    return -(-classes // 32)


def packed_tables(arrays: Sequence[bytes]) -> bytes:
    """Return the tables of an automaton, given its arrays of native 32-bit integers (see `Automaton.arrays`)."""
    contents = [array("i", [len(each) // 4 for each in arrays]).tobytes(), *arrays]
    return b"".join([blake2b(b"".join(contents), digest_size=DIGEST_SIZE).digest(), *contents])
