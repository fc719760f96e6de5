"""Decoding under a constraint: which tokens a masked position may hold, and which sampled tokens to keep.

A window is a string with a gap at each masked position. Reading it from the left gives the *forward
set* of each position: the states in which the automaton may be before that position, if gaps may
hold any token. Reading it from the right gives the *backward set*: the states before that position
from which the answer can still reach an accepting state, given the rest of the window, the pinned
tokens after it and the number of positions left. Position i may hold a token iff the token leads
from a state in the forward set of i to a state in the backward set of i + 1.

This is exact for one position. Tokens sampled in the same pass may contradict each other, so a
block tries them by descending probability and keeps each token with which the window can still be
completed.

A *letter* is what the automaton reads: a class of ids, or `ANY` for a gap. Sets of states are
bitmaps. Decoding visits the same few sets repeatedly, so each move is computed once and cached.
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import TypeVar
from weakref import WeakValueDictionary

from .automaton import DEAD, Automaton, members
from .block import Block
from .errors import DlstepError
from .values import value

Moves = tuple[dict[int, int], dict[int, int]]  # by state: the next states, and the previous states
Key = TypeVar("Key")
Result = TypeVar("Result")

ANY = -1  # the letter of a gap
MOST_KEPT = 1 << 13  # entries of a cache of moves, up to 0.5 kB each; a full cache is cleared
MOST_SWEEPS = 1 << 10  # entries of a cache of results for whole blocks, 0.7 kB each
LONGEST_SWEEP = 64  # letters; results for longer blocks are not cached


@value
class TokenMask:
    """The ids that one position may hold, as a bitmap of the classes of a constraint.

    `id` identifies the set of ids and is the same in every process. Only `id` is compared and recorded.
    """

    id: int
    constraint: "Constraint | None" = field(default=None, compare=False, repr=False)
    classes: int = field(default=0, compare=False, repr=False)

    def ids(self) -> list[int]:
        """Return the allowed ids, ascending."""
        assert self.constraint is not None, "a mask that was read from a trace has no ids to look up"
        return [token for token, letter in enumerate(self.constraint.class_of) if self.classes >> letter & 1]

    @property
    def count(self) -> int:
        """The number of allowed ids."""
        assert self.constraint is not None, "a mask that was read from a trace has no ids to look up"
        sizes = self.constraint.sizes()
        return sum([sizes[letter] for letter in members(self.classes)])


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Constraint:
    """An automaton together with the ids that end an answer; `bound` builds it.

    A stop id may follow a complete string of the language, and only stop ids may follow a stop id.
    No string of the language contains a stop id.
    """

    automaton: Automaton
    stop_ids: tuple[int, ...]
    stop_class: int
    """The class of stop ids; its number follows those of the automaton's classes."""
    done: int
    """The state after a stop id; its number follows those of the automaton's states."""
    last: int
    """The bitmap of the states in which an answer may end."""
    class_of: Sequence[int] = field(repr=False)
    """The class of each id; `stop_class` for stop ids."""
    arrows: tuple[dict[int, int], ...] = field(repr=False)
    """For each state and each of its next states, the bitmap of the classes that lead there."""
    _moves: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int], repr=False)
    _back: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int], repr=False)
    _masks: dict[tuple[int, int], TokenMask] = field(default_factory=dict[tuple[int, int], TokenMask], repr=False)
    _after_eight: dict[tuple[int, int, int], int] = field(default_factory=dict[tuple[int, int, int], int], repr=False)
    _before_eight: dict[tuple[int, int, int], int] = field(default_factory=dict[tuple[int, int, int], int], repr=False)
    _letters: dict[tuple[object, ...], list[int]] = field(default_factory=dict[tuple[object, ...], list[int]], repr=False)
    _forward: dict[tuple[int, ...], list[int]] = field(default_factory=dict[tuple[int, ...], list[int]], repr=False)
    _backward: dict[tuple[int, ...], list[int]] = field(default_factory=dict[tuple[int, ...], list[int]], repr=False)
    _by_letter: dict[int, Moves] = field(default_factory=dict[int, Moves], repr=False)
    _sizes: "Counter[int]" = field(default_factory=Counter[int], repr=False)

    def __reduce__(self) -> tuple[object, ...]:
        return bound, (self.automaton, self.stop_ids)

    def sizes(self) -> "Counter[int]":
        """Return the number of ids of each class."""
        if not self._sizes:
            self._sizes.update(self.class_of)
        return self._sizes

    def letters(self, start: int, tokens: tuple[int, ...], masked: tuple[int, ...]) -> list[int]:
        """Return the class of each token, and ANY at the `masked` positions; the first token is at position `start`.

        The list is cached: copy it before changing it.
        """
        # The plan, the rule and the checks of one pass all read the same tokens.
        key = (start, tokens, masked)
        letters = self._letters.get(key)
        if letters is None:
            class_of = self.class_of
            letters = [class_of[token] for token in tokens]
            for position in masked:
                letters[position - start] = ANY
            self._keep(self._letters, key, letters, MOST_SWEEPS)
        return letters

    def after(self, states: int, letter: int) -> int:
        """Return the states that `letter` leads to from any of `states`."""
        known = self._moves.get((states, letter))
        if known is None:
            known = self._union(states, letter, 0, self._after_eight)
            self._keep(self._moves, (states, letter), known)
        return known

    def before(self, states: int, letter: int) -> int:
        """Return the states from which `letter` leads to any of `states`."""
        known = self._back.get((states, letter))
        if known is None:
            known = self._union(states, letter, 1, self._before_eight)
            self._keep(self._back, (states, letter), known)
        return known

    def _union(self, states: int, letter: int, way: int, eight: dict[tuple[int, int, int], int]) -> int:
        """Return the states one `letter` after (`way` 0) or before (`way` 1) any of `states`.

        A set may have thousands of states, so the result is assembled from cached results for eight
        states (one byte of the bitmap) each.
        """
        union = 0
        for place, byte in enumerate(states.to_bytes(-(-states.bit_length() // 8), "little")):
            if byte:
                known = eight.get((letter, place, byte))
                if known is None:
                    reached, known = self._moves_by(letter)[way], 0
                    for bit in members(byte):
                        known |= reached.get(8 * place + bit, 0)
                    self._keep(eight, (letter, place, byte), known)
                union |= known
        return union

    def _moves_by(self, letter: int) -> Moves:
        """Return the moves by `letter`: the next states of each state, and the previous states of each state."""
        known = self._by_letter.get(letter)
        if known is None:
            known = self._by_letter[letter] = {}, {}
            for state, arrows in enumerate(self.arrows):
                for target, classes in arrows.items():
                    if letter == ANY or classes >> letter & 1:
                        known[0][state] = known[0].get(state, 0) | 1 << target
                        known[1][target] = known[1].get(target, 0) | 1 << state
        return known

    def mask(self, states: int, following: int) -> TokenMask:
        """Return the mask of the ids that lead from any of `states` to any of `following`."""
        known = self._masks.get((states, following))
        if known is None:
            classes = 0
            for state in members(states):
                for target, of_arrow in self.arrows[state].items():
                    if following >> target & 1:
                        classes |= of_arrow
            known = self._named(classes)
            self._keep(self._masks, (states, following), known)
        return known

    @property
    def anything(self) -> TokenMask:
        """The mask that allows every id."""
        return self._named((2 << self.stop_class) - 1)

    def _named(self, classes: int) -> TokenMask:
        """Return the mask of these classes, with its id."""
        named = repr((self.automaton.digest, self.stop_ids, classes)).encode()
        return TokenMask(int.from_bytes(blake2b(named, digest_size=8).digest()) >> 2, self, classes)

    @staticmethod
    def _keep(memory: dict[Key, Result], key: Key, result: Result, most: int = MOST_KEPT) -> None:
        """Add a result to a cache, after clearing a full one: this needs no bookkeeping at each lookup."""
        if len(memory) >= most:
            memory.clear()
        memory[key] = result

    def forward(self, states: int, letters: Sequence[int]) -> list[int]:
        """Return the states before each letter and after the last one; those before the first letter are `states`.

        The list is cached: copy it before changing it.
        """
        key = (states, *letters)
        sets = self._forward.get(key)
        if sets is None:
            sets, known, after = [states], self._moves.get, self.after
            for letter in letters:
                # Most moves are in the cache: look them up here, without a method call.
                found = known((states, letter))
                states = after(states, letter) if found is None else found
                sets.append(states)
            if len(letters) <= LONGEST_SWEEP:
                self._keep(self._forward, key, sets, MOST_SWEEPS)
        return sets

    def backward(self, letters: Sequence[int], states: int) -> list[int]:
        """Return the states before each letter from which the rest leads to any of `states`; the last entry is `states`.

        The list is cached: copy it before changing it.
        """
        key = (states, *letters)
        sets = self._backward.get(key)
        if sets is None:
            sets, known, before = [states], self._back.get, self.before
            for letter in reversed(letters):
                found = known((states, letter))
                states = before(states, letter) if found is None else found
                sets.append(states)
            sets.reverse()
            if len(letters) <= LONGEST_SWEEP:
                self._keep(self._backward, key, sets, MOST_SWEEPS)
        return sets


# Constraints of live requests, so that equal ones share their caches. `lru_cache` keeps the last eight alive between requests.
_BOUND: "WeakValueDictionary[tuple[Automaton, tuple[int, ...]], Constraint]" = WeakValueDictionary()


@lru_cache(maxsize=8)
def bound(automaton: Automaton, stop_ids: tuple[int, ...]) -> Constraint:
    """Return the constraint of an automaton, whose strings may be followed by `stop_ids`.

    Equal arguments give the same object while a request uses it.
    """
    return _BOUND.get((automaton, stop_ids)) or _BOUND.setdefault((automaton, stop_ids), _bind(automaton.loaded, stop_ids))


def _bind(automaton: Automaton, stop_ids: tuple[int, ...]) -> Constraint:
    """Build the constraint."""
    classes, stop_class = array("i", automaton.classes), len(automaton.moves[0])
    # Stop ids move to a separate class. A class that has no other ids must lead nowhere: otherwise a
    # gap could be filled with a letter that no id has. Class 0 has only ids that lead nowhere.
    lost = [classes[token] for token in stop_ids]
    empty = {letter for letter in lost if classes.count(letter) == lost.count(letter)} | {0}
    done, arrows = len(automaton.moves), list[dict[int, int]]()
    for state, row in enumerate(automaton.moves):
        of_state: dict[int, int] = {}
        for letter, target in enumerate(row):
            if target != DEAD and letter not in empty:
                of_state[target] = of_state.get(target, 0) | 1 << letter
        if automaton.accepting >> state & 1 and stop_ids:
            of_state[done] = 1 << stop_class
        arrows.append(of_state)
    arrows.append({done: 1 << stop_class} if stop_ids else {})
    for token in stop_ids:
        classes[token] = stop_class
    return Constraint(automaton, stop_ids, stop_class, done, automaton.accepting | 1 << done, classes, tuple(arrows))


@dataclass(frozen=True, slots=True)
class RequestConstraint:
    """The constraint of one request, whose answer has the positions `[start, limit)`.

    `pinned` holds pairs of an offset from `start` and the token pinned there. `ends[i]` is the bitmap
    of the states before position `start + i` from which the answer can still end in time, if all
    positions but the pinned ones are gaps.
    """

    automaton: Automaton
    stop_ids: tuple[int, ...]
    start: int
    limit: int
    pinned: tuple[tuple[int, int], ...] = ()
    constraint: Constraint = field(init=False, compare=False, repr=False)
    ends: tuple[int, ...] = field(init=False, compare=False, repr=False)

    def __reduce__(self) -> tuple[object, ...]:
        return RequestConstraint, (self.automaton, self.stop_ids, self.start, self.limit, self.pinned)

    def __post_init__(self) -> None:
        constraint = bound(self.automaton, self.stop_ids)
        letters = [ANY] * (self.limit - self.start)
        for offset, token in self.pinned:
            if offset < len(letters):
                letters[offset] = constraint.class_of[token]
        object.__setattr__(self, "constraint", constraint)
        object.__setattr__(self, "ends", tuple(constraint.backward(letters, constraint.last)))

    @property
    def feasible(self) -> bool:
        """Whether any answer satisfies the constraint, contains the pinned tokens and ends in time."""
        return bool(self.ends[0] & 1)

    def run(self, state: int, tokens: Iterable[int]) -> int:
        """Return the state to which `tokens` lead from `state`. Raises DlstepError if they contradict the constraint."""
        moves, class_of = self.constraint.after, self.constraint.class_of
        for token in tokens:
            states = moves(1 << state, class_of[token])
            if not states:
                raise DlstepError(f"token {token} was kept, but {self.automaton.source} does not allow it there")
            state = states.bit_length() - 1  # the automaton is deterministic: the bitmap has one bit
        return state

    def window_masks(self, state: int, settled: int, window: Sequence[Block], sampled: Sequence[int]) -> tuple[TokenMask, ...]:
        """Return the mask of each sampled position; positions past the answer may hold any id.

        Args:
            state: The automaton's state before position `settled`.
            settled: The first position that is read from the window.
            window: The blocks of the sequence.
            sampled: The sampled positions, ascending, none below `settled`.
        """
        constraint, parts, end = self.constraint, list[list[int]](), settled
        for block in window:
            if block.end > settled:
                letters = constraint.letters(block.start, block.tokens, block.masked)
                parts.append(letters[max(0, settled - block.start) : self.limit - block.start])
                end += len(parts[-1])
        # Compute the sets block by block: most blocks have not changed since the last pass, so theirs are cached.
        before, after = [1 << state], [self.ends[end - self.start]]
        for part in parts:
            before += constraint.forward(before.pop(), part)
        for part in reversed(parts):
            after[:1] = constraint.backward(part, after[0])  # its last entry is after[0] again
        mask, limit = constraint.mask, self.limit
        inside = sampled if not sampled or sampled[-1] < limit else [position for position in sampled if position < limit]
        masks = [mask(before[position - settled], after[position - settled + 1]) for position in inside]
        return (*masks, *[constraint.anything] * (len(sampled) - len(inside)))
