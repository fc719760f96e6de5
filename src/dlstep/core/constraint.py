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

A *letter* is what the automaton reads: a class of ids, or `ANY` for a gap.
"""

from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import Any
from weakref import WeakValueDictionary

from .automaton import (
    ANY,
    MOST_KEPT,
    Automaton,
    Edges,
    Moves,
    StateSet,
    bitmap_of,
    members,
    packed_tables,
    remember,
    sets_after,
    sets_before,
)
from .block import Block
from .errors import DlstepError
from .spec import Ids, Pins, Positions

MOST_BLOCKS = 1 << 10  # entries of the cache of letters, 0.7 kB for 32 positions
MOST_BYTES = 1 << 20  # of cached sets in one direction
SET_BYTES = 400  # of a set, besides its bitmap


@dataclass(frozen=True, slots=True)
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
        sizes = self.constraint.sizes
        return sum([sizes[letter] for letter in members(self.classes)])


class LazyMasks(Sequence[TokenMask]):
    """The masks of a span's sampled positions, computed together when the first of them is read.

    Planning a pass therefore takes no time for masks: the driver reads them while the device computes hidden states. The
    sequence compares, hashes, pickles and serializes like the tuple of its masks.

    Args:
        count: The number of masks.
        compute: Returns the masks. Threads may call it at the same time; each call must return the same masks.
    """

    def __init__(self, count: int, compute: Callable[[], tuple[TokenMask, ...]]) -> None:
        self._count, self._compute = count, compute

    @property
    def all(self) -> tuple[TokenMask, ...]:
        """The masks, computed on the first read."""
        masks = self._compute()
        self._compute = lambda: masks  # releases what the masks were computed from
        return masks

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        masks: Any = self.all
        return masks[index]

    def __eq__(self, other: object) -> bool:
        return self.all == (other.all if isinstance(other, LazyMasks) else other)

    def __hash__(self) -> int:
        return hash(self.all)

    def __repr__(self) -> str:
        return repr(self.all)

    def __reduce__(self) -> tuple[object, ...]:
        return tuple, (self.all,)


@dataclass(frozen=True, eq=False, repr=False)  # without slots, because cached properties need a `__dict__`
class Constraint:
    """An automaton together with the ids that end an answer; `bound` builds it.

    A stop id may follow a complete string of the language, and only stop ids may follow a stop id.
    No string of the language contains a stop id.
    """

    automaton: Automaton
    stop_ids: Ids
    stop_class: int
    """The class of stop ids; its number follows those of the automaton's classes."""
    done: int
    """The state after a stop id; its number follows those of the automaton's states."""
    last: int
    """The bitmap of the states in which an answer may end."""
    class_of: Sequence[int]
    """The class of each id; `stop_class` for stop ids."""
    sizes: Sequence[int]
    """The number of ids of each class."""
    _edges: Edges
    _stoppable: int
    """The bitmap of the states that a stop id may follow."""
    _most: int
    """The maximum number of cached sets in each direction, and of cached masks."""
    _next: Moves
    previous: Moves
    """The moves of backward sets."""
    _masks: dict[tuple[StateSet, StateSet], TokenMask]
    _by_classes: dict[int, TokenMask]
    _letters: dict[tuple[object, ...], list[int]]

    def __reduce__(self) -> tuple[object, ...]:
        return bound, (self.automaton, self.stop_ids)

    def letters(self, start: int, tokens: Ids, masked: Positions) -> list[int]:
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
            remember(self._letters, key, letters, MOST_BLOCKS)
        return letters

    def states(self, bitmap: int) -> StateSet:
        """Return the set of the states in `bitmap`. Its moves lead to the next states."""
        return self._next.state_set(bitmap)

    def masks(self, pairs: Sequence[tuple[StateSet, StateSet]]) -> list[TokenMask]:
        """Return, for each pair, the mask of the ids that lead from a state of the first set to one of the second set."""
        if missing := [pair for pair in dict.fromkeys(pairs) if pair not in self._masks]:
            if len(self._masks) + len(missing) > self._most:
                self._masks.clear()
                missing = [*dict.fromkeys(pairs)]
            found = self._edges.classes([(states.bitmap, following.bitmap) for states, following in missing])
            for (states, following), classes in zip(missing, found, strict=True):
                stop = states.bitmap & self._stoppable and following.bitmap >> self.done & 1
                self._masks[states, following] = self.named(classes | stop << self.stop_class)
        return [self._masks[pair] for pair in pairs]

    def leads(self, states: StateSet, letter: int, following: StateSet) -> bool:
        """Return whether a letter other than ANY leads from a state of the first set to one of the second set."""
        mask = self._masks.get((states, following))  # known if a position was sampled between these sets
        return bool(states[letter].bitmap & following.bitmap if mask is None else mask.classes >> letter & 1)

    @property
    def anything(self) -> TokenMask:
        """The mask that allows every id."""
        return self.named((2 << self.stop_class) - 1)

    def named(self, classes: int) -> TokenMask:
        """Return the mask that allows these classes."""
        known = self._by_classes.get(classes)
        if known is None:
            named = f"({self.automaton.digest!r}, {self.stop_ids}, {classes:x})".encode()
            known = TokenMask(int.from_bytes(blake2b(named, digest_size=8).digest()) >> 2, self, classes)
            remember(self._by_classes, classes, known)
        return known


# Constraints of live requests, so that equal ones share their caches. `lru_cache` keeps the last eight alive between requests.
_BOUND: "WeakValueDictionary[tuple[Automaton, Ids], Constraint]" = WeakValueDictionary()


@lru_cache(maxsize=8)
def bound(automaton: Automaton, stop_ids: Ids) -> Constraint:
    """Return the constraint of an automaton, whose strings may be followed by `stop_ids`.

    Equal arguments give the same object while a request uses it.
    """
    return _BOUND.get((automaton, stop_ids)) or _BOUND.setdefault((automaton, stop_ids), _bind(automaton.loaded, stop_ids))


def _bind(automaton: Automaton, stop_ids: Ids) -> Constraint:
    """Build the constraint."""
    classes, sizes, done = array("i"), [*automaton.sizes, len(stop_ids)], automaton.state_count
    classes.frombytes(automaton.class_of.tobytes())
    stop_class = len(automaton.sizes)
    # Stop ids move to a separate class. A class that has no other ids must lead nowhere: otherwise a
    # gap could be filled with a letter that no id has. Class 0 has only ids that lead nowhere.
    for token in stop_ids:
        sizes[classes[token]] -= 1
        classes[token] = stop_class
    gap = bitmap_of([letter for letter in range(1, stop_class) if sizes[letter]])
    edges = automaton.edges_of(automaton, gap)
    last = automaton.accepting | 1 << done
    stoppable = last if stop_ids else 0

    def after(states: int, letter: int) -> int:
        """Return the next states of any of `states`."""
        reached = 0 if letter == stop_class else edges.after(states, letter)
        return reached | 1 << done if letter in (ANY, stop_class) and states & stoppable else reached

    def before(states: int, letter: int) -> int:
        """Return the previous states of any of `states`."""
        sources = 0 if letter == stop_class else edges.before(states, letter)
        return sources | stoppable if letter in (ANY, stop_class) and states >> done & 1 else sources

    most = max(1 << 9, min(MOST_KEPT, MOST_BYTES // (done // 8 + SET_BYTES)))
    moves = Moves(after, most), Moves(before, most)
    return Constraint(automaton, stop_ids, stop_class, done, last, classes, sizes, edges, stoppable, most, *moves, {}, {}, {})


@lru_cache(maxsize=8)
def all_but(forbidden: int, vocab_size: int) -> TokenMask:
    """Return the mask that allows every id of a vocabulary but one.

    Args:
        forbidden: The id.
        vocab_size: Number of ids of the vocabulary.
    """
    classes = array("i", [1]) * vocab_size
    classes[forbidden] = 0
    arrays = [classes, *[array("i", values) for values in ([1, vocab_size - 1], [0], [], [0, 0], [], [0, 0], [], [0], [], [])]]
    tables = packed_tables([each.tobytes() for each in arrays])
    return bound(Automaton.of(f"all ids but {forbidden}", tables, Edges), ()).named(2)


# A window read from both ends, by example.
#
# The language `ab|ba` has the moves 0 -a-> 1 -b-> 3 and 0 -b-> 2 -a-> 3, and an answer must end in state 3. Two positions are
# left. If both are masked, the forward sets before them are {0} and {1, 2}, and the backward sets are {1, 2} after the first
# and {3} after the second. Both positions may then hold `a` or `b`. Two samples `a` would contradict each other: one of them
# is dropped (see `filtering.py`). Once the second position holds `b`, the backward set after the first is {1}: only `a` leads
# there.
# The exact computation is cheap, because the same sets occur again and again. Each set of states is one object (`StateSet`)
# that maps a letter to the next set. Reading a window therefore takes two dictionary lookups for each position, whatever the
# size of the automaton, and the mask of a position takes a third one, by the pair of its sets. Sets, moves and masks that are
# not cached yet are computed from bitmaps of states and of classes.
@dataclass(frozen=True)  # without slots, because cached properties need a `__dict__`
class RequestConstraint:
    """The constraint of one request, whose answer has the positions `[start, limit)`.

    `pinned` holds pairs of an offset from `start` and the token pinned there. Masks keep `reserve` times
    as many tokens free as the shortest valid rest of the answer takes. The tables of the automaton are looked up only when the
    request is planned, because a trace is read before its automata are compiled.
    """

    automaton: Automaton
    stop_ids: Ids
    start: int
    limit: int
    pinned: Pins = ()
    reserve: int = 1

    def __reduce__(self) -> tuple[object, ...]:
        return RequestConstraint, (self.automaton, self.stop_ids, self.start, self.limit, self.pinned, self.reserve)

    @cached_property
    def constraint(self) -> Constraint:
        """The automaton bound to the stop ids. Raises DlstepError if this process has not compiled the automaton."""
        return bound(self.automaton, self.stop_ids)

    @cached_property
    def ends(self) -> Sequence[StateSet]:
        """For each offset, the states from which the answer can end in time, if all positions but pinned ones are gaps."""
        letters, constraint = [ANY] * (self.limit - self.start), self.constraint
        for offset, token in self.pinned:
            if offset < len(letters):
                letters[offset] = constraint.class_of[token]
        return sets_before(letters, constraint.previous.state_set(constraint.last))

    def likely_ends(self, offset: int, reached: StateSet) -> StateSet:
        """Return the states at `offset` that masks may lead to, given the states that can be reached there.

        From these states, the answer can end within 1/`reserve` of the positions left. If none of them can
        be reached, the limit is raised until one can. Only masks depend on the reserve, not the check of
        sampled tokens (`filtering.py`), so the reserve never stops a decode.
        """
        ends, last = self.ends, len(self.ends) - 1
        first = offset if self.pinned or not self.stop_ids else last - (last - offset) // self.reserve
        return next((ends[place] for place in range(first, offset, -1) if ends[place].bitmap & reached.bitmap), ends[offset])

    @property
    def feasible(self) -> bool:
        """Whether any answer satisfies the constraint, contains the pinned tokens and ends in time."""
        return bool(self.ends[0].bitmap & 1)

    def run(self, state: int, tokens: Iterable[int]) -> int:
        """Return the state to which `tokens` lead from `state`. Raises DlstepError if a token contradicts the constraint."""
        states, class_of = self.constraint.states(1 << state), self.constraint.class_of
        for token in tokens:
            states = states[class_of[token]]
            if not states.bitmap:
                raise DlstepError(f"token {token} was kept, but {self.automaton.source} does not allow it there")
        return states.bitmap.bit_length() - 1  # the automaton is deterministic: the bitmap has one bit

    def letters(self, settled: int, window: Sequence[Block]) -> list[int]:
        """Return the letters of `window` from position `settled` up to the end of the answer."""
        constraint, letters = self.constraint, list[int]()
        for block in window:
            if block.end > settled:
                of_block = constraint.letters(block.start, block.tokens, block.masked)
                letters += of_block[max(0, settled - block.start) : self.limit - block.start]
        return letters

    def window_masks(self, state: int, settled: int, window: Sequence[Block], sampled: Sequence[int]) -> tuple[TokenMask, ...]:
        """Return the mask of each sampled position; positions past the answer may hold any id.

        Args:
            state: The automaton's state before position `settled`.
            settled: The first position that is read from the window.
            window: The blocks of the sequence.
            sampled: The sampled positions, ascending, none below `settled`.
        """
        constraint, limit = self.constraint, self.limit
        # Later blocks have only gaps: the reserve applies to them.
        read = max([block.start for block in window if len(block.masked) < len(block.tokens)] + [*sampled[-1:]], default=0)
        letters = self.letters(settled, [block for block in window if block.start <= read])
        before = sets_after(constraint.states(1 << state), letters)
        after = sets_before(letters, self.likely_ends(settled + len(letters) - self.start, before[-1]))
        pairs = list(zip(before, after[1:], strict=False))
        inside = sampled if not sampled or sampled[-1] < limit else [position for position in sampled if position < limit]
        masks = constraint.masks([pairs[position - settled] for position in inside])
        if len(inside) < len(sampled):
            masks += [constraint.anything] * (len(sampled) - len(inside))
        return tuple(masks)

    def causal_masks(self, state: int, block: Block) -> tuple[TokenMask, ...]:
        """Return the mask of each position of `block`, given only the tokens of the block before this position.

        After a token with which the answer can no longer end in time, positions may hold any id.

        Args:
            state: The automaton's state before the block.
            block: Tokens followed by masks, with no position past the answer.
        """
        constraint, ends, masks = self.constraint, self.ends, list[TokenMask]()
        states = constraint.states(1 << state)
        letters = constraint.letters(block.start, block.tokens, block.masked)
        for offset, letter in enumerate(letters, block.start - self.start):
            possible = states.bitmap & ends[offset].bitmap
            before = constraint.states(possible)
            pairs = [(before, self.likely_ends(offset + 1, before[ANY]))] if possible else []
            masks += constraint.masks(pairs) or [constraint.anything]
            states = states[letter]
        return tuple(masks)
