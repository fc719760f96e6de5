"""Decoding under a constraint: which tokens each masked position may hold, and which to keep.

A window is a string with gaps. Reading it from the left gives, before each position, the *forward
set*: the states that the automaton can be in, where a gap reads any token. Reading it backwards
gives the *backward set*: the states from which the rest of the window, the pinned tokens after it
and the number of positions left can still lead to an accepting state. Position i may hold a token
iff the token leads from a state of its forward set to a state of the backward set of i + 1. This is
exact for one position. Several tokens sampled in one pass may contradict each other, so blocks keep
them in the order of confidence, each only if the window can still be completed.

Sets of states are bitmaps. Decoding visits few of them, again and again, so each move is computed
once and then looked up.
"""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import TypeVar

from .automaton import DEAD, Automaton, members
from .block import Block
from .errors import DlstepError
from .values import value

Moves = tuple[dict[int, int], dict[int, int]]  # by state: the next states, and the states before
Key = TypeVar("Key")
Result = TypeVar("Result")

ANY = -1  # the letter of a gap
MOST_KEPT = 1 << 13  # entries of a memory of moves, of up to 0.5 kB each; it is emptied when full


@value
class TokenMask:
    """The ids that one position may hold: a bitmap of the classes of a constraint.

    `id` identifies the set of ids, equal in every process. It is all that is compared and recorded.
    """

    id: int
    constraint: "Constraint | None" = field(default=None, compare=False, repr=False)
    classes: int = field(default=0, compare=False, repr=False)

    def ids(self) -> list[int]:
        """Return the allowed ids, ascending."""
        assert self.constraint is not None, "a mask that was read from a trace is only compared"
        letter, classes = self.constraint.letter, self.classes
        return [token for token in range(self.constraint.automaton.vocab_size) if classes >> letter(token) & 1]


@dataclass(frozen=True, slots=True, eq=False)
class Constraint:
    """An automaton and the ids that end an answer. Equal arguments give the same object.

    A stop id may follow a string of the language, and only stop ids may follow a stop id. An id that
    ends the answer is no letter of the language.
    """

    automaton: Automaton
    stop_ids: tuple[int, ...]
    stop_class: int
    """The class of stop ids, after those of the automaton."""
    done: int
    """The state after a stop id, after those of the automaton."""
    last: int
    """The states in which an answer may end."""
    arrows: tuple[dict[int, int], ...] = field(repr=False)
    """For each state, the bitmap of classes that lead to each next state."""
    _moves: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int], repr=False)
    _back: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int], repr=False)
    _masks: dict[tuple[int, int], TokenMask] = field(default_factory=dict[tuple[int, int], TokenMask], repr=False)
    _after_eight: dict[tuple[int, int, int], int] = field(default_factory=dict[tuple[int, int, int], int], repr=False)
    _before_eight: dict[tuple[int, int, int], int] = field(default_factory=dict[tuple[int, int, int], int], repr=False)
    _by_letter: dict[int, Moves] = field(default_factory=dict[int, Moves], repr=False)

    def __reduce__(self) -> tuple[object, ...]:
        return bound, (self.automaton, self.stop_ids)

    def letter(self, token: int) -> int:
        """Return the class of an id."""
        return self.stop_class if token in self.stop_ids else self.automaton.class_of[token]

    def letters(self, start: int, tokens: Iterable[int], masked: Iterable[int]) -> list[int]:
        """Return the class of each token, and ANY for the positions `masked`, counted from `start`."""
        stop_ids, stop_class, class_of = self.stop_ids, self.stop_class, self.automaton.class_of
        letters = [stop_class if token in stop_ids else class_of[token] for token in tokens]
        for position in masked:
            letters[position - start] = ANY
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
        """Return the union of the moves of `states` by `letter`, looked up for eight states at a time."""
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
        """Return for each state those that `letter` leads to, and those from which it leads there."""
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
        """Return the ids that lead from one of `states` to one of `following`."""
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
        """Return the mask of these classes."""
        named = repr((self.automaton.digest, self.stop_ids, classes)).encode()
        return TokenMask(int.from_bytes(blake2b(named, digest_size=8).digest()) >> 2, self, classes)

    @staticmethod
    def _keep(memory: dict[Key, Result], key: Key, result: Result) -> None:
        if len(memory) >= MOST_KEPT:
            memory.clear()
        memory[key] = result

    def forward(self, states: int, letters: Sequence[int]) -> list[int]:
        """Return the states before each letter and after the last one."""
        sets, after = [states], self.after
        for letter in letters:
            states = after(states, letter)
            sets.append(states)
        return sets

    def backward(self, letters: Sequence[int], states: int) -> list[int]:
        """Return the states before each letter from which the rest leads to `states`, and `states`."""
        sets, before = [states], self.before
        for letter in reversed(letters):
            states = before(states, letter)
            sets.append(states)
        sets.reverse()
        return sets


@lru_cache(maxsize=64)
def bound(automaton: Automaton, stop_ids: tuple[int, ...]) -> Constraint:
    """Return the constraint of an automaton whose strings end before one of `stop_ids`."""
    automaton = automaton.loaded
    classes, stop_class = array("i", automaton.classes), len(automaton.moves[0])
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
    return Constraint(automaton, stop_ids, stop_class, done, automaton.accepting | 1 << done, tuple(arrows))


@dataclass(frozen=True, slots=True)
class RequestConstraint:
    """The constraint of one request, whose answer has the positions `[start, limit)`.

    `pinned` are its pinned tokens, with offsets from `start`. `ends[i]` are the states before
    position `start + i` from which an answer can end in time, whatever masked positions hold.
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
                letters[offset] = constraint.letter(token)
        object.__setattr__(self, "constraint", constraint)
        object.__setattr__(self, "ends", tuple(constraint.backward(letters, constraint.last)))

    @property
    def feasible(self) -> bool:
        """Whether some answer fits: it ends in time and has the pinned tokens."""
        return bool(self.ends[0] & 1)

    def run(self, state: int, tokens: Iterable[int]) -> int:
        """Return the state after `tokens`. Raises DlstepError if they contradict the constraint."""
        moves, letter = self.constraint.after, self.constraint.letter
        for token in tokens:
            states = moves(1 << state, letter(token))
            if not states:
                raise DlstepError(f"token {token} was kept, but {self.automaton.source} does not allow it there")
            state = states.bit_length() - 1
        return state

    def window_masks(self, state: int, settled: int, window: Sequence[Block], sampled: Sequence[int]) -> tuple[TokenMask, ...]:
        """Return the mask of each sampled position of a window, whose text up to `settled` leads to `state`.

        Positions past the answer may hold any id.
        """
        letters: list[int] = []
        for block in window:
            if block.end > settled:
                of_block = self.constraint.letters(block.start, block.tokens, block.masked)
                letters += of_block[max(0, settled - block.start) : self.limit - block.start]
        before = self.constraint.forward(1 << state, letters)
        after = self.constraint.backward(letters, self.ends[settled + len(letters) - self.start])
        mask, limit = self.constraint.mask, self.limit
        inside = sampled if not sampled or sampled[-1] < limit else [position for position in sampled if position < limit]
        masks = [mask(before[position - settled], after[position - settled + 1]) for position in inside]
        return (*masks, *[self.constraint.anything] * (len(sampled) - len(inside)))
