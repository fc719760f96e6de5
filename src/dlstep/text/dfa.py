r"""Deterministic finite automata over characters: regexes, numbers and lists of texts, and their products.

`explored` builds automata from a start state of any kind and a function that returns the moves of a
state. An automaton is compared by identity, so that products can be cached.
"""

import json
import re
import warnings
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import cache, lru_cache
from importlib import import_module
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

# The parser of `re` has no public name. It has been the same from Python 3.11 on.
parser: Any = import_module("re._parser")
op: Any = import_module("re._constants")

Ranges = tuple[tuple[int, int], ...]  # of characters: the first and the last one
Move = tuple[int, int, int]  # first and last character, and the next state
Row = tuple[Move, ...]  # ascending, without overlap
State = TypeVar("State", bound=Hashable)
MOST_STATES = 1 << 16


class TooManyStates(ValueError):
    """Error for an automaton that exceeds its limit of states."""


@dataclass(frozen=True, eq=False, slots=True)
class Dfa:
    """An automaton that starts in state 0; the empty language has no states. Every state can reach an accepting one."""

    rows: tuple[Row, ...]
    accepting: frozenset[int]

    def accepts(self, text: str) -> bool:
        """Return whether a text is in the language."""
        state = 0 if self.rows else None
        for letter in text:
            state = None if state is None else _next(self.rows[state], ord(letter))
        return state in self.accepting

    @property
    def example(self) -> str:
        """A shortest text of the language, which must not be empty."""
        beginnings, seen = [("", 0)], {0}
        for text, state in beginnings:  # grows while it is read
            if state in self.accepting:
                return text
            for letter, _, to in self.rows[state]:
                if to not in seen:
                    seen.add(to)
                    beginnings.append((text + chr(letter), to))
        raise ValueError("the language is empty")


EMPTY = Dfa((), frozenset())


def explored(start: State, moves: Callable[[State], Iterable[tuple[int, int, State]]], accepts: Callable[[State], bool]) -> Dfa:
    """Return the automaton whose states are those that `moves` leads to. The moves of a state must not overlap."""
    states, number, rows = [start], {start: 0}, list[Row]()
    before: list[list[int]] = [[]]
    for place, state in enumerate(states):  # grows while it is read
        row: list[Move] = []
        for low, high, after in moves(state):
            if after not in number:
                number[after] = len(states)
                states.append(after)
                before.append([])
            row.append((low, high, number[after]))
            before[number[after]].append(place)
        rows.append(tuple(sorted(row)))
        if len(states) > MOST_STATES:
            raise TooManyStates(f"it needs more than {MOST_STATES} states")
    stack = [place for place, state in enumerate(states) if accepts(state)]
    accepting, live = frozenset(stack), {*stack}
    while stack:
        fresh = {*before[stack.pop()]} - live
        live |= fresh
        stack += fresh
    if 0 not in live:
        return EMPTY
    kept = {place: index for index, place in enumerate(sorted(live))}
    return Dfa(tuple(_joined(rows[place], kept) for place in kept), frozenset(kept[place] for place in accepting))


def _joined(row: Row, number: dict[int, int]) -> Row:
    """Return a row with renumbered states. States without a number are left out, and adjacent equal moves joined."""
    joined: list[Move] = []
    for low, high, after in row:
        if (to := number.get(after)) is not None:
            if joined and joined[-1][1] == low - 1 and joined[-1][2] == to:
                low = joined.pop()[0]
            joined.append((low, high, to))
    return tuple(joined)


def _next(row: Row, letter: int) -> int | None:
    place = bisect_right(row, letter, key=lambda move: move[0]) - 1
    return row[place][2] if place >= 0 and letter <= row[place][1] else None


def _split(moves: Iterable[tuple[int, int, State]]) -> Iterator[tuple[int, int, frozenset[State]]]:
    """Yield the ranges of characters within which no move begins or ends, each with the states to which moves lead."""
    begins, ends = defaultdict[int, list[State]](list), defaultdict[int, list[State]](list)
    for low, high, to in moves:
        begins[low].append(to)
        ends[high + 1].append(to)
    active: list[State] = []
    for low, end in pairwise(sorted(begins.keys() | ends.keys())):
        active += begins[low]
        for state in ends[low]:
            active.remove(state)
        if active:
            yield low, end - 1, frozenset(active)


def _product(one: Dfa, other: Dfa, accepts: Callable[[bool, bool], bool]) -> Dfa:
    """Return the automaton of the texts for which `accepts` holds, given whether each automaton accepts them."""

    def moves(pair: tuple[int | None, int | None]) -> Iterator[tuple[int, int, tuple[int | None, int | None]]]:
        rows = [() if state is None else dfa.rows[state] for dfa, state in zip((one, other), pair, strict=True)]
        for low, high, found in _split((low, high, (side, to)) for side, row in enumerate(rows) for low, high, to in row):
            after = dict(found)
            if any(accepts(a, b) for a in {False, 0 in after} for b in {False, 1 in after}):
                yield low, high, (after.get(0), after.get(1))

    return explored(
        (0 if one.rows else None, 0 if other.rows else None),
        moves,
        lambda pair: accepts(pair[0] in one.accepting, pair[1] in other.accepting),
    )


@lru_cache(4096)
def intersection(one: Dfa, other: Dfa) -> Dfa:
    """Return the automaton of the texts that both accept."""
    return one if one is other else _product(one, other, lambda a, b: a and b)


@lru_cache(4096)
def union(one: Dfa, other: Dfa) -> Dfa:
    """Return the automaton of the texts that either accepts."""
    if one is other or not other.rows:
        return one
    return _product(one, other, lambda a, b: a or b) if one.rows else other


@lru_cache(4096)
def difference(one: Dfa, other: Dfa) -> Dfa:
    """Return the automaton of the texts that only the first accepts."""
    return _product(one, other, lambda a, b: a and not b) if other.rows else one


def words(texts: Iterable[str]) -> Dfa:
    """Return the automaton of a list of texts, which is their trie."""
    moves: list[dict[int, int]] = [{}]
    accepting: list[int] = []
    for text in texts:
        state = 0
        for letter in map(ord, text):
            if letter not in moves[state]:
                moves[state][letter] = len(moves)
                moves.append({})
            state = moves[state][letter]
        if len(moves) > MOST_STATES:
            raise TooManyStates(f"they have more than {MOST_STATES} characters, equal beginnings counted once")
        accepting.append(state)
    rows = tuple(tuple((letter, letter, after) for letter, after in sorted(row.items())) for row in moves)
    return Dfa(rows, frozenset(accepting)) if accepting else EMPTY


# Characters that JSON writes as they are, or with a backslash and one letter.
LETTERS: Ranges = ((8, 10), (12, 13), (0x20, 0xD7FF), (0xE000, 0x10FFFF))


@lru_cache(256)
def lengths(least: int, most: int | None, letters: Ranges = LETTERS) -> Dfa:
    """Return the automaton of the strings of `least` to `most` characters."""
    top = least if most is None else most

    def moves(length: int) -> Iterator[tuple[int, int, int]]:
        after = min(length + 1, top) if most is None else length + 1
        for low, high in letters if after <= top else ():
            yield low, high, after

    return explored(0, moves, lambda length: length >= least)


STRINGS = lengths(0, None)


# Numbers: without an exponent, because automata cannot compare exponents.

WHOLE = 15  # digits of a number, of which at most DECIMALS after the point: so many are exact in 64 bits
DECIMALS = 6


class _Read(NamedTuple):
    """The beginning of a number: how many digits before and after the point, and their `value` under `follow`."""

    whole: int = 0
    decimals: int = -1  # before the point
    negative: bool = False
    zero: bool = False  # whether the number begins with a zero, so that only a point may follow
    value: int = 0


def _numbers(follow: Callable[[int, int, int], int], accepts: Callable[[_Read], bool], decimals: int = DECIMALS) -> Dfa:
    """Return the automaton of numbers; `follow(value, place, digit)` reads a digit, place -1 being the first decimal."""

    def moves(read: _Read) -> Iterator[tuple[int, int, _Read]]:
        whole, after, negative, zero, value = read
        if read == _Read():
            yield ord("-"), ord("-"), read._replace(negative=True)
        if whole and after < 0 and decimals and whole < WHOLE:
            yield ord("."), ord("."), read._replace(decimals=0)
        if whole + max(after, 0) < WHOLE and after < decimals and (after >= 0 or not zero):
            for digit in range(10):
                fresh = follow(value, whole if after < 0 else -1 - after, digit)
                more = (whole + 1, -1) if after < 0 else (whole, after + 1)
                yield ord("0") + digit, ord("0") + digit, _Read(*more, negative, zero or (not whole and not digit), fresh)

    return explored(_Read(), moves, lambda read: read.whole > 0 and read.decimals != 0 and accepts(read))


NUMBERS = _numbers(lambda value, place, digit: 0, lambda read: True)
INTEGERS = _numbers(lambda value, place, digit: 0, lambda read: True, 0)


@lru_cache(1024)
def compared(limit: Decimal, relations: frozenset[int]) -> Dfa:
    """Return the automaton of the numbers that are less than (-1), equal to (0) or greater than (1) a limit."""
    digits, _, fraction = format(abs(limit), "f").partition(".")
    fraction = fraction.rstrip("0")
    sign = (limit > 0) - (limit < 0)

    def follow(value: int, place: int, digit: int) -> int:
        """Compare with the limit as if both had the same number of digits."""
        known = digits[place : place + 1] if place >= 0 else fraction[-1 - place : -place]
        return value or (digit > int(known or 0)) - (digit < int(known or 0))

    def holds(read: _Read) -> bool:
        size = (read.whole > len(digits)) - (read.whole < len(digits)) or read.value
        if not size and fraction[max(read.decimals, 0) :]:
            size = -1  # the limit has more decimals
        if read.negative:
            size = -size if sign < 0 else -1 if sign else -abs(size)
        elif sign < 0:
            size = 1
        return size in relations

    return _numbers(follow, holds)


@lru_cache(256)
def multiples(step: int) -> Dfa:
    """Return the automaton of the multiples of a whole number."""

    def follow(value: int, place: int, digit: int) -> int:
        if place < 0 or value < 0:  # decimals must be zeros
            return value if digit == 0 else -1
        return (value * 10 + digit) % step

    return _numbers(follow, lambda read: read.value == 0)


# Regexes


class Pattern(NamedTuple):
    """A regex of a schema: the strings that match it, among those for which its dialects agree."""

    matched: Dfa
    agreed: Dfa


BASIC: Ranges = ((8, 10), (12, 13), (0x20, 0xD7FF), (0xE000, 0xFFFF))  # one UTF-16 code unit
ASCII: Ranges = ((9, 10), (12, 13), (0x20, 0x7E))
ALL: Ranges = ((0, 0xD7FF), (0xE000, 0x10FFFF))
# Syntax that Python reads differently from ECMA-262, or that only Python accepts.
OTHERWISE = re.compile(r"(?<!\\)(?:\\\\)*(\\[aNUAZ]|\[\^?\]|\{,|\(\?[^:=!<P])")
NAMES = {
    op.ASSERT: "look-around",
    op.ASSERT_NOT: "look-around",
    op.GROUPREF: "a back-reference",
    op.GROUPREF_EXISTS: "a back-reference",
    op.AT: r"a word boundary",
    op.ATOMIC_GROUP: "an atomic group",
    op.POSSESSIVE_REPEAT: "a possessive repetition",
}
CATEGORIES = {
    op.CATEGORY_DIGIT: r"\d+",
    op.CATEGORY_NOT_DIGIT: r"\D+",
    op.CATEGORY_WORD: r"\w+",
    op.CATEGORY_NOT_WORD: r"\W+",
    op.CATEGORY_SPACE: r"\s+",
    op.CATEGORY_NOT_SPACE: r"\S+",
}


@lru_cache(1024)
def pattern(text: str) -> Pattern:
    r"""Return the automaton of the strings in which a regex of a schema finds a match.

    Strings about which dialects disagree are left out: without the Unicode flag, ECMA-262 counts
    UTF-16 code units; `\d`, `\w` and `\s` are ASCII in some dialects; `.` does not match all line
    breaks, and `$` may match before the last one.

    Raises:
        ValueError: The pattern is invalid, or no finite automaton has its language.
    """
    if (found := OTHERWISE.search(text)) is not None:
        raise ValueError(f"{found[1]} is not supported")
    nfa = _Nfa(text, search=True)
    doubtful = [(letter, letter) for letter in nfa.doubtful]
    agreed = lengths(0, None, _complement([*_complement(ASCII if nfa.named else BASIC), *doubtful]))
    return Pattern(intersection(nfa.determined(), agreed), agreed)


@lru_cache(64)
def regex(text: str) -> Dfa:
    """Return the automaton of the texts that match a regex of Python as a whole. Raises ValueError as `pattern` does."""
    return _Nfa(text, search=False).determined()


def _complement(ranges: Iterable[tuple[int, int]]) -> Ranges:
    kept, first = list[tuple[int, int]](), 0
    for low, high in sorted(ranges):
        if first < low:
            kept.append((first, low - 1))
        first = max(first, high + 1)
    return (*kept, (first, 0x10FFFF)) if first <= 0x10FFFF else tuple(kept)


@cache
def _category(name: Any, ascii_only: bool) -> Ranges:
    r"""Return the characters that a class such as `\d` matches in Python."""
    every = "".join(map(chr, range(128 if ascii_only else 0x110000)))
    return tuple((found.start(), found.end() - 1) for found in re.finditer(CATEGORIES[name], every))


class _Nfa:
    """A nondeterministic automaton of a regex (Thompson's construction).

    Args:
        text: The regex, in the syntax of Python.
        search: Whether a match may be anywhere in a text.
    """

    def __init__(self, text: str, *, search: bool) -> None:
        self._search = search
        self.named = False  # whether it has a class such as \d
        self.doubtful = set[int]()  # characters that dialects treat differently
        self._moves: list[list[Move]] = []  # by state
        self._silent: list[list[tuple[Any, int]]] = []  # by state: moves without a character, some only at an anchor
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about [[ and && in classes, which have no meaning yet
                tree = parser.parse(text)
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"it is not a regular expression: {error}") from error
        self._start = self._state()
        begin = self._state(self._start)
        self._end = self._built(tree, begin, tree.state.flags)
        for state in (self._start, self._end) if search else ():
            self._moves[state].append((0, 0x10FFFF, state))

    def _state(self, *before: int, anchor: Any = None) -> int:
        """Return a new state, with silent moves to it."""
        if len(self._moves) > 20 * MOST_STATES:
            raise TooManyStates("it is too large")
        self._moves.append([])
        self._silent.append([])
        for state in before:
            self._silent[state].append((anchor, len(self._moves) - 1))
        return len(self._moves) - 1

    def _built(self, tree: Any, state: int, flags: int) -> int:
        """Add the states of a part of the regex after `state`. Return the last one."""
        for kind, value in tree:
            match kind:
                case op.BRANCH:
                    state = self._state(*[self._built(branch, self._state(state), flags) for branch in value[1]])
                case op.SUBPATTERN:
                    _, added, removed, part = value
                    state = self._built(part, state, (flags | added) & ~removed)
                case op.MAX_REPEAT | op.MIN_REPEAT:
                    least, most, part = value
                    state = self._repeated(least, most, part, state, flags)
                case op.AT if value in (op.AT_BEGINNING, op.AT_BEGINNING_STRING):
                    state = self._state(state, anchor="^")
                case op.AT if value in (op.AT_END, op.AT_END_STRING):
                    self.doubtful.add(10)
                    state = self._state(state, anchor="$")
                case op.LITERAL | op.NOT_LITERAL | op.ANY | op.IN:
                    after = self._state()
                    self._moves[state] += [(low, high, after) for low, high in self._letters(kind, value, flags)]
                    state = after
                case _:
                    raise ValueError(f"{NAMES.get(kind, str(kind))} is not supported: write it without")
        return state

    def _repeated(self, least: int, most: int, part: Any, state: int, flags: int) -> int:
        for _ in range(least):
            state = self._built(part, state, flags)
        if most is op.MAXREPEAT:
            begin = self._state(state)
            self._silent[self._built(part, begin, flags)].append((None, begin))
            return self._state(begin)
        ends = [state]
        for _ in range(most - least):
            ends.append(self._built(part, ends[-1], flags))
        return self._state(*ends)

    def _letters(self, kind: Any, value: Any, flags: int) -> Ranges:
        """Return the characters that a part of the regex matches."""
        if kind is op.ANY:
            self.doubtful |= {13, 0x2028, 0x2029}
            return ALL if flags & re.DOTALL else _complement([(10, 10)])
        items = value if kind is op.IN else [(kind, value)]
        ranges: list[tuple[int, int]] = []
        for item, letters in items:
            if item is op.CATEGORY:
                self.named = True
                ranges += _category(letters, self._search)
            elif item is not op.NEGATE:
                ranges.append(letters if item is op.RANGE else (letters, letters))
        if flags & re.IGNORECASE:
            known = {letter for low, high in ranges for letter in range(low, min(high, 0x24F) + 1)}
            cases = {case for letter in map(chr, known) for case in (letter.lower(), letter.upper()) if len(case) == 1}
            ranges += [(ord(case), ord(case)) for case in cases]
        return _complement(ranges) if items[0][0] in (op.NEGATE, op.NOT_LITERAL) else tuple(ranges)

    def _closed(self, states: Iterable[int], anchor: str | None = None) -> frozenset[int]:
        """Return the states that silent moves lead to, including those at an anchor."""
        reached, stack = set(states), list(states)
        while stack:
            for at, after in self._silent[stack.pop()]:
                if at in (None, anchor) and after not in reached:
                    reached.add(after)
                    stack.append(after)
        return frozenset(reached)

    def determined(self) -> Dfa:
        """Return the equivalent deterministic automaton (its states are sets of states)."""
        end = self._end
        always = frozenset([end]) if self._moves[end] else None  # in a search, a text with a match may continue in any way

        def moves(states: frozenset[int]) -> Iterator[tuple[int, int, frozenset[int]]]:
            for low, high, reached in _split(move for state in states for move in self._moves[state]):
                after = self._closed(reached)
                yield low, high, always if always and end in after else after

        first = self._closed([self._start], "^")
        return explored(always if always and end in first else first, moves, lambda states: end in self._closed(states, "$"))


# Texts as bytes

JSON_STRINGS = regex(r'(?:[^\x00-\x1f"\\]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*')
ESCAPES = {letter: json.dumps(chr(letter))[1:-1].encode() for letter in (*range(0x20), 0x22, 0x5C)}
Bytes = tuple[tuple[int, int], ...]  # ranges of bytes, one after another


@lru_cache(4096)
def spelled(language: Dfa, *, quoted: bool = False) -> Dfa:
    """Return the automaton over UTF-8 bytes of a language; if `quoted`, of its texts as the content of JSON strings."""
    if quoted and language is STRINGS:
        return spelled(JSON_STRINGS)  # the only language that allows several spellings
    if not language.rows:
        return EMPTY

    def moves(places: frozenset[tuple[int, Bytes]]) -> Iterator[tuple[int, int, frozenset[tuple[int, Bytes]]]]:
        return _split(move for place in places for move in following(*place))

    def following(state: int, rest: Bytes) -> Iterator[tuple[int, int, tuple[int, Bytes]]]:
        """Yield the moves by the rest of a character, or by the first byte of the next one."""
        if rest:
            yield *rest[0], (state, rest[1:])
        for low, high, after in () if rest else language.rows[state]:
            for first, *more in _spellings(low, high, quoted):
                yield *first, (after, tuple(more))

    def accepts(places: frozenset[tuple[int, Bytes]]) -> bool:
        return any(not rest and state in language.accepting for state, rest in places)

    return explored(frozenset([(0, Bytes())]), moves, accepts)


@lru_cache(4096)
def _spellings(low: int, high: int, quoted: bool) -> tuple[Bytes, ...]:
    """Return a range of characters as sequences of ranges of bytes."""
    if low > high:
        return ()
    for letter, escape in ESCAPES.items() if quoted else ():
        if low <= letter <= high:
            escaped = tuple((byte, byte) for byte in escape)
            return *_spellings(low, letter - 1, quoted), escaped, *_spellings(letter + 1, high, quoted)
    for most in (0x7F, 0x7FF, 0xD7FF, 0xDFFF, 0xFFFF):
        if low <= most < high:
            return _spellings(low, most, quoted) + _spellings(most + 1, high, quoted)
    if 0xD800 <= low <= 0xDFFF:  # half of a character in UTF-16
        return ()
    first, last = chr(low).encode(), chr(high).encode()
    for count in range(1, len(first)):
        mask = (1 << 6 * count) - 1
        if low & ~mask != high & ~mask:
            if low & mask:
                return _spellings(low, low | mask, quoted) + _spellings((low | mask) + 1, high, quoted)
            if high & mask != mask:
                return _spellings(low, (high & ~mask) - 1, quoted) + _spellings(high & ~mask, high, quoted)
    return (tuple(zip(first, last, strict=True)),)
