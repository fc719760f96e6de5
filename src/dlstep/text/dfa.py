r"""Deterministic finite automata over characters: regexes, numbers and lists of texts, and their products.

`explored` builds automata from a start state of any kind and a function that returns the moves of a
state. An automaton is compared by identity, so that products can be cached.
"""

import json
import re
import warnings
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import cache, lru_cache, partial
from importlib import import_module
from itertools import pairwise
from operator import and_, gt, or_
from typing import Any, TypeVar

import regex as unicode_regex

# The parser of `re` has no public name. It has been the same from Python 3.11 on.
parser: Any = import_module("re._parser")
op: Any = import_module("re._constants")

State = TypeVar("State", bound=Hashable)
Range = tuple[int, int]  # of characters: the first and the last one
Ranges = tuple[Range, ...]
Move = tuple[int, int, State]  # first and last character, and the next state
Row = tuple[Move[int], ...]  # ascending, without overlap
MOST_STATES = 1 << 16  # a set of states is a bitmap, and decoding keeps thousands of sets


class TooManyStates(ValueError):
    """Error for an automaton that exceeds its limit of states."""


@dataclass(frozen=True, eq=False, slots=True)
class Dfa:
    """An automaton that starts in state 0; the empty language has no states. Every state can reach an accepting one."""

    rows: tuple[Row, ...]
    accepting: frozenset[int]
    largest: str = ""
    """The part of the constraint with most of the states, as the end of a message; may be empty."""

    def accepts(self, text: str) -> bool:
        """Return whether a text is in the language."""
        states = {0} if self.rows else set[int]()
        for letter in map(ord, text):
            states = {to for state in states for low, high, to in self.rows[state] if low <= letter <= high}
        return not states.isdisjoint(self.accepting)

    @property
    def example(self) -> str:
        """A shortest text of the language, which must not be empty. States are numbered by their distance from the first."""
        text, state = "", min(self.accepting)
        while state:
            state, letter = next((before, low) for before, row in enumerate(self.rows) for low, _, to in row if to == state)
            text = chr(letter) + text
        return text


EMPTY = Dfa((), frozenset())


def explored(start: State, moves: Callable[[State], Iterable[Move[State]]], accepts: Callable[[State], bool]) -> Dfa:
    """Return the automaton whose states are those that `moves` leads to. The moves of a state must not overlap."""
    states, number, rows = [start], {start: 0}, list[Row]()
    before: list[list[int]] = [[]]
    for place, state in enumerate(states):  # grows while it is read
        row: list[Move[int]] = []
        for low, high, after in moves(state):
            if after not in number:
                number[after] = len(states)
                states.append(after)
                before.append([])
            before[number[after]].append(place)
            if row and row[-1][1:] == (low - 1, number[after]):  # extend the previous range
                low = row.pop()[0]
            row.append((low, high, number[after]))
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
    kept_rows = [tuple([(low, high, kept[to]) for low, high, to in rows[place] if to in kept]) for place in kept]
    return Dfa(tuple(kept_rows), frozenset([kept[place] for place in accepting]))


def _split(moves: Iterable[Move[State]]) -> Iterator[Move[frozenset[State]]]:
    """Yield the ranges of characters within which no move begins or ends, each with the states to which moves lead."""
    begins, ends, active = defaultdict[int, list[Move[State]]](list), set[int](), list[Move[State]]()
    for move in moves:
        begins[move[0]].append(move)
        ends.add(move[1] + 1)
    for low, end in pairwise(sorted(begins.keys() | ends)):
        active = [move for move in active if move[1] >= low] + begins[low]
        if active:
            yield low, end - 1, frozenset([to for _, _, to in active])


@lru_cache(4096)
def product(accepts: Callable[[bool, bool], bool], one: Dfa, other: Dfa) -> Dfa:
    """Return the automaton of the texts for which `accepts` holds, given whether each automaton accepts them."""
    if one is other or not other.rows:
        return one if accepts(True, one is other) else EMPTY
    if not one.rows:
        return other if accepts(False, True) else EMPTY

    all_rows = (*one.rows, ()), (*other.rows, ())  # index -1: a state without moves

    def moves(pair: tuple[int, int]) -> Iterator[Move[tuple[int, int]]]:
        rows = [rows[state] for rows, state in zip(all_rows, pair, strict=True)]
        for low, high, found in _split((low, high, (side, to)) for side, row in enumerate(rows) for low, high, to in row):
            after = dict(found)
            if any(accepts(a, b) for a in {False, 0 in after} for b in {False, 1 in after}):
                yield low, high, (after.get(0, -1), after.get(1, -1))

    return explored((0, 0), moves, lambda pair: accepts(pair[0] in one.accepting, pair[1] in other.accepting))


intersection = partial(product, and_)  # the texts that both accept
union = partial(product, or_)  # the texts that at least one accepts
difference = partial(product, gt)  # the texts that only the first accepts


@cache
def parted(count: int) -> tuple[Dfa, ...]:
    """Return `count` languages that divide all texts by the sum of the codes of their ASCII characters, modulo `count`."""

    def moves(total: int) -> Iterator[Move[int]]:
        yield from ((letter, letter, (total + letter) % count) for letter in range(128))
        yield 128, 0x10FFFF, total

    return tuple(explored(0, moves, lambda total, part=part: total == part) for part in range(count))


class Nfa:
    """A nondeterministic automaton that is built state by state; TooManyStates is raised after `most` states."""

    def __init__(self, most: int = 4 * MOST_STATES) -> None:
        self._most = most
        self.moves: list[list[Move[int]]] = []  # by state
        self.silent: list[list[tuple[str | None, int]]] = []  # by state: moves without a character, some only at an anchor

    def state(self, *before: int, anchor: str | None = None) -> int:
        """Return a new state, with a silent move to it from each state of `before`."""
        if len(self.moves) > self._most:
            raise TooManyStates("it is too large: make it smaller")
        self.moves.append([])
        self.silent.append([])
        for state in before:
            self.link(state, len(self.moves) - 1, anchor)
        return len(self.moves) - 1

    def link(self, state: int, after: int, anchor: str | None = None) -> None:
        """Add a silent move from one state to another."""
        self.silent[state].append((anchor, after))

    def path(self, state: int, letters: Iterable[int]) -> int:
        """Add states that read `letters` one by one after `state`. Return the last one."""
        for letter in letters:
            after = self.state()
            self.moves[state].append((letter, letter, after))
            state = after
        return state

    def language(self, automaton: Dfa, state: int) -> int:
        """Add the texts of a deterministic automaton after `state`. Return the state after them."""
        places = [self.state() for _ in automaton.rows]
        for place, row in zip(places, automaton.rows, strict=True):
            self.moves[place] += [(low, high, places[to]) for low, high, to in row]
        for place in places[:1]:
            self.link(state, place)
        return self.state(*[places[place] for place in automaton.accepting])

    def _closed(self, states: Iterable[int], anchor: str | None = None) -> frozenset[int]:
        """Return `states` and all states that silent moves reach from them, including moves at `anchor`."""
        reached, stack = set(states), list(states)
        while stack:
            for at, after in self.silent[stack.pop()]:
                if at in (None, anchor) and after not in reached:
                    reached.add(after)
                    stack.append(after)
        return frozenset(reached)

    def determined(self, start: int, end: int) -> Dfa:
        """Return the automaton of the texts that lead from `start` to `end`.

        Each state of the result is a set of states of this automaton. To get fewer distinct sets, they
        omit states that have neither a move with a character nor a silent move at an anchor, except `end`.
        """
        kept = {end} | {state for state, steps in enumerate(self.silent) if self.moves[state] or any(at for at, _ in steps)}

        always = frozenset([end]) if self.moves[end] else None  # once a search has matched, any text may follow

        @cache
        def closed(states: frozenset[int], anchor: str | None = None) -> frozenset[int]:
            reached = self._closed(states, anchor) & kept
            return always if always and end in reached else reached

        def moves(states: frozenset[int]) -> Iterator[Move[frozenset[int]]]:
            for low, high, reached in _split(move for state in states for move in self.moves[state]):
                yield low, high, closed(reached)

        return explored(closed(frozenset([start]), "^"), moves, lambda states: end in self._closed(states, "$"))


def words(texts: Iterable[str]) -> Dfa:
    """Return the automaton that accepts exactly these texts."""
    nfa = Nfa()
    start = nfa.state()
    return nfa.determined(start, nfa.state(*[nfa.path(start, map(ord, text)) for text in texts]))


# Regexes

# Three readings of a regex: what all dialects match, what Python matches, and what any dialect matches.
ALL, PYTHON, ANY = range(3)
# Parts of the syntax of ECMA-262 that Python lacks or reads differently, and then single characters and escapes.
SYNTAX = re.compile(
    r"""\\(?P<category>[dDwWsS]|[pP]\{[^}]*\})|\\u\{(?P<code>0*[0-9a-fA-F]{1,6})\}|\\c(?P<control>[A-Za-z])|(?P<group>\(\?<[^=!>]*>)
    |(?P<reference>\\k<)|(?P<posix>\[[:.=]\w+[:.=]\])|(?P<doubtful>\\[aNUAZ]|\{,|\(\?[^:=!<P]|\[\^?\])
    |(?P<hyphen>-(?=\\[dDwWsSpP]))|\[\^?|\\.|.""",
    re.VERBOSE | re.DOTALL,
)
NAMES = {
    op.ASSERT: "look-around",
    op.ASSERT_NOT: "look-around",
    op.GROUPREF: "a back-reference",
    op.GROUPREF_EXISTS: "a back-reference",
    op.AT: "a word boundary",
    op.ATOMIC_GROUP: "an atomic group",
    op.POSSESSIVE_REPEAT: "a possessive repetition",
}
CATEGORIES = {  # by reading: ALL, PYTHON, ANY. Dialects disagree about letters beyond ASCII
    "d": ("[0-9]", r"\d", r"\d"),
    "w": ("[A-Za-z0-9_]", r"\w", r"[\w\x80-\U0010ffff]"),
    "s": (r"[\t-\r ]", r"\s", r"[\s\ufeff]"),
}


def _translated(text: str, reading: int) -> str:
    """Return a regex in the syntax of Python. Raises ValueError for syntax that dialects read differently."""
    parts, opening = list[str](), ""  # `[` or `[^` inside a set of characters
    for found in SYNTAX.finditer(text):
        part, kind = found[0], found.lastgroup
        if (kind == "posix" and opening) or (kind == "doubtful" and reading != PYTHON and not (opening and part[0] in "{([")):
            raise ValueError(f"{part} is not supported: dialects read it differently")
        if kind == "reference":
            raise ValueError(f"{NAMES[op.GROUPREF]} is not supported: leave it out")
        if kind == "category":
            letters = _category(found[kind], ANY - reading if opening[1:] else reading)
            part = "".join(f"\\U{low:08x}-\\U{high:08x}" for low, high in letters)
            part = part if opening else f"[{part}]"
        elif kind in ("code", "control"):
            part = f"\\U{int(found[kind], 16) if kind == 'code' else ord(found[kind]) % 32:08x}"
        elif kind == "group" and not opening:
            part = "("
        elif opening:
            part = rf"\{part}" if kind == "hyphen" else part
            opening = opening if part != "]" else ""
        elif part[0] == "[":
            opening = part[:2].rstrip("]")
        parts.append(part)
    return "".join(parts)


@cache
def _category(name: str, reading: int) -> Ranges:
    r"""Return the characters of a class such as `\d`, given the text after the backslash."""
    if name in ("D", "W", "S"):
        return _complement(_category(name.lower(), ANY - reading))
    text, module = (CATEGORIES[name][reading], re) if name in CATEGORIES else (f"\\{name}", unicode_regex)
    try:
        found = module.finditer(f"{text}+", "".join(map(chr, range(0x110000))))
    except unicode_regex.error as error:
        raise ValueError(f"{text} is not supported: {error}") from error
    return tuple((each.start(), each.end() - 1) for each in found)


class _Regex(Nfa):
    """A regex (Thompson's construction).

    Args:
        text: The regex, in the syntax of Python or of ECMA-262.
        reading: ALL, PYTHON or ANY. Except with PYTHON, a match may be anywhere in a text.
    """

    def __init__(self, text: str, reading: int) -> None:
        super().__init__()
        self._reading = reading
        self.controls = set[int]()  # control characters in the regex
        self.ends = False  # whether it has `$`, which may also match before a final line break
        text = _translated(text, reading)
        try:
            with warnings.catch_warnings(action="ignore"):  # about syntax that may change its meaning
                tree = parser.parse(text)
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"it is not a regular expression: {error}") from error
        start = self.state()
        end = self._built(tree, self.state(start), tree.state.flags)
        for state in (start, end) if reading != PYTHON else ():
            self.moves[state].append((0, 0x10FFFF, state))
        self.dfa = self.determined(start, end)

    def _built(self, tree: Any, state: int, flags: int) -> int:
        """Add the states of a part of the regex after `state`. Return the last one."""
        for kind, value in tree:
            match kind:
                case op.BRANCH:
                    state = self.state(*[self._built(branch, self.state(state), flags) for branch in value[1]])
                case op.SUBPATTERN:
                    _, added, removed, part = value
                    state = self._built(part, state, (flags | added) & ~removed)
                case op.MAX_REPEAT | op.MIN_REPEAT:
                    least, most, part = value
                    state = self._repeated(least, most, part, state, flags)
                case op.AT if value in (op.AT_BEGINNING, op.AT_BEGINNING_STRING):
                    state = self.state(state, anchor="^")
                case op.AT if value in (op.AT_END, op.AT_END_STRING):
                    self.ends = True
                    state = self.state(state, anchor="$")
                case op.LITERAL | op.NOT_LITERAL | op.ANY | op.IN:
                    after = self.state()
                    self.moves[state] += [(low, high, after) for low, high in self._letters(kind, value, flags)]
                    state = after
                case _:
                    raise ValueError(f"{NAMES.get(kind, str(kind))} is not supported: leave it out")
        return state

    def _repeated(self, least: int, most: int, part: Any, state: int, flags: int) -> int:
        for _ in range(least):
            state = self._built(part, state, flags)
        if most is op.MAXREPEAT:
            begin = self.state(state)
            self.link(self._built(part, begin, flags), begin)
            return self.state(begin)
        ends = [state]
        for _ in range(most - least):
            ends.append(self._built(part, ends[-1], flags))
        return self.state(*ends)

    def _letters(self, kind: Any, value: Any, flags: int) -> Ranges:
        """Return the characters that a part of the regex matches."""
        if kind is op.ANY:
            breaks = [] if flags & re.DOTALL else [(10, 10)]
            return _complement(breaks if self._reading else [*breaks, (13, 13), (0x2028, 0x2029)])
        items = value if kind is op.IN else [(kind, value)]
        negated = items[0][0] in (op.NEGATE, op.NOT_LITERAL)
        ranges: list[Range] = []
        for item, letters in items:
            if item is not op.NEGATE:
                ranges.append(letters if item is op.RANGE else (letters, letters))
        self.controls |= {low for low, high in ranges if low == high < 0x20}
        if flags & re.IGNORECASE:
            known = {letter for low, high in ranges for letter in range(low, min(high, 0x24F) + 1)}
            cases = {case for letter in map(chr, known) for case in (letter.lower(), letter.upper()) if len(case) == 1}
            ranges += [(ord(case), ord(case)) for case in cases]
        return _complement(ranges) if negated else tuple(ranges)


def _complement(ranges: Iterable[Range]) -> Ranges:
    kept, first = list[Range](), 0
    for low, high in sorted(ranges):
        if first < low:
            kept.append((first, low - 1))
        first = max(first, high + 1)
    return (*kept, (first, 0x10FFFF)) if first <= 0x10FFFF else tuple(kept)


@lru_cache(1024)
def pattern(text: str, *, holds: bool = True) -> Dfa:
    r"""Return the automaton of the strings in which a regex of a schema finds a match, or finds none.

    Strings on which dialects disagree are in neither automaton: `\d`, `\w` and `\s` are ASCII in some
    dialects; dialects differ in which line breaks `.` matches, and in whether `$` matches before a
    final one; without the Unicode flag, ECMA-262 counts UTF-16 code units.

    Raises:
        ValueError: The pattern is invalid, or no finite automaton has its language.
    """
    found = _Regex(text, ALL if holds else ANY)
    controls = "".join(f"|\\x{letter:02x}" for letter in found.controls)
    known = regex(f"(?:[^{BEYOND_BASIC}]{controls})*")
    if holds:
        return intersection(found.dfa, known)
    unmatched = difference(known, found.dfa)
    return difference(unmatched, regex(r"(?s:.*)\n")) if found.ends else unmatched


@lru_cache(1024)
def regex(text: str) -> Dfa:
    """Return the automaton of the texts that match a regex of Python as a whole. Raises ValueError as `pattern` does."""
    return _Regex(text, PYTHON).dfa


# Character classes for regexes. LETTERS: the characters that JSON writes as they are, or as a backslash and one letter.
# ASCII: those of them that are ASCII, except backspace.
# BEYOND_BASIC (without brackets): all characters that are not in LETTERS or have two UTF-16 code units.
LETTERS = "[\b-\n\f-\r -\ud7ff\ue000-\U0010ffff]"
ASCII = "[\t-\n\f-\r -~]"
BEYOND_BASIC = "\0-\a\v\x0e-\x1f\ud800-\udfff\U00010000-\U0010ffff"
STRINGS = regex(f"{LETTERS}*")


# Numbers: without an exponent, because automata cannot compare exponents.

# With a point, at most 15 digits, of which at most 6 after the point: 64-bit floats distinguish all such numbers.
# Without a point, at most 18 digits, because programs that read JSON may have 64-bit integers.
NUMBERS = intersection(regex(r"-?(0|[1-9][0-9]*)(\.[0-9]{1,6})?"), regex(r"-?([0-9](\.?[0-9]){0,14}|[0-9]{16,18})"))
INTEGERS = intersection(NUMBERS, regex("[0-9-]*"))


@lru_cache(1024)
def compared(limit: Decimal) -> tuple[Dfa, Dfa, Dfa]:
    """Return the automata of the numbers that are less than a limit, equal to it, and greater."""
    whole, _, fraction = format(min(abs(limit), Decimal(10**18)), "f").partition(".")
    fraction = fraction.rstrip("0")[:7]  # NUMBERS have at most 6, so 7 digits still compare alike with all of them
    # Numbers are farther from zero if they have more digits, or if the first different digit is larger.
    farther = [rf"[1-9][0-9]{{{len(whole)},}}(\.[0-9]+)?", rf"{whole}\.{fraction}0*[1-9][0-9]*"]
    for place, digit in enumerate(whole):
        if digit < "9":
            farther.append(rf"{whole[:place]}[{int(digit) + 1}-9][0-9]{{{len(whole) - place - 1}}}(\.[0-9]+)?")
    for place, digit in enumerate(fraction):
        if digit < "9":
            farther.append(rf"{whole}\.{fraction[:place]}[{int(digit) + 1}-9][0-9]*")
    sign = "-" if limit < 0 else ""
    beyond = intersection(regex(f"{sign}({'|'.join(farther)})"), NUMBERS)
    zeros = rf"\.{fraction}0*" if fraction else r"(\.0+)?"
    equal = intersection(regex(f"{sign if limit else '-?'}{whole}{zeros}"), NUMBERS)
    others = difference(difference(NUMBERS, equal), beyond)
    return (beyond, equal, others) if limit < 0 else (others, equal, beyond)


@lru_cache(256)
def multiples(step: int, places: int = 0) -> Dfa:
    """Return the automaton of the multiples of `step` / 10 ** `places`."""

    def moves(state: tuple[int, int]) -> Iterator[Move[tuple[int, int]]]:
        remainder, left = state  # of the digits so far, and how many more digits count; -1: the point may follow
        for digit in range(10 if left else 1):
            after = ((remainder * 10 + digit) % step, left - (left > 0)) if left else state
            yield ord("0") + digit, ord("0") + digit, after
        if left < 0:
            yield ord("-"), ord("-"), state
            yield ord("."), ord("."), (remainder, places)

    def accepts(state: tuple[int, int]) -> bool:
        remainder, left = state
        return remainder * 10 ** (left if left >= 0 else places) % step == 0

    return intersection(explored((0, -1), moves, accepts), NUMBERS)


# Texts as bytes

HALVES = r"u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # escapes of the two halves of a character in UTF-16
JSON_STRINGS = regex(
    rf'(?:[^\x00-\x1f"\\]|\\(?:["\\/bfnrt]|u(?:[0-9a-ce-fA-CE-F][0-9a-fA-F]|[dD][0-7])[0-9a-fA-F]{{2}}|{HALVES}))*'
)
ESCAPES = {letter: json.dumps(chr(letter))[1:-1].encode() for letter in (*range(0x20), 0x22, 0x5C)}
Bytes = Ranges  # of bytes, one after another


@lru_cache(4096)
def spelled(language: Dfa, *, quoted: bool = False) -> Dfa:
    """Return the automaton over UTF-8 bytes of a language; if `quoted`, of its texts as the content of JSON strings."""
    if not language.rows:
        return EMPTY

    def moves(places: frozenset[tuple[int, Bytes]]) -> Iterator[Move[frozenset[tuple[int, Bytes]]]]:
        return _split(move for place in places for move in following(*place))

    def following(state: int, rest: Bytes) -> Iterator[Move[tuple[int, Bytes]]]:
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
