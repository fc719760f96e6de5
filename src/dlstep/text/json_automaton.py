"""Build byte automata: of regexes and choices, and of JSON schemas.

The texts of a schema have its properties in their order. Their states are built from the end of a
text to its begin: a value ends where it says so itself, so its automaton needs only the state that
follows it. Alternatives are united from the first byte on.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from decimal import Decimal
from functools import cache, lru_cache, reduce
from itertools import pairwise
from typing import Any, NamedTuple

from ..core.checks import short
from . import dfa
from .dfa import Dfa, Ranges, TooManyStates
from .json_schema import ANYTHING, FREE, STRINGS, Conjunction, Schemas, Shape, json_text

Row = dict[int, int]  # the next state by byte; without any, no text goes on
ByteAutomaton = tuple[list[Row], list[int], int]  # rows, accepting states, first state
END = 256  # in a row: the text may end
QUOTE = 0x22
ESCAPES = {0x22: b'"', 0x5C: b"\\", 8: b"b", 9: b"t", 10: b"n", 12: b"f", 13: b"r"}
HEX = b"0123456789abcdefABCDEF"
MOST_CLASSES = 64  # of names that differ in what their values must be
MOST_UNIQUE = 6  # values that the items of an array with unique items may have
MOST_STATES = 60_000
MOST_MOVES = 2_000_000  # about 150 MB


class Limits(NamedTuple):
    """What a large schema gives up."""

    recursion: int = 3  # how often a schema may contain itself
    depth: int = 3  # nested objects and arrays in a value of any kind
    longest: int = 4096  # of strings that have a maximum
    letters: Ranges = dfa.LETTERS  # of strings with limits of their length
    extras: bool = True  # properties that the schema does not name and about which it says nothing
    spaces: bytes = b" "  # of which one may stand around brackets, commas and colons


# To be tried in turn.
LIMITS = (
    Limits(),
    Limits(depth=2, longest=512),
    Limits(2, 1, 128, dfa.ASCII),
    Limits(1, 1, 64, dfa.ASCII),
    Limits(1, 0, 64, dfa.ASCII, extras=False),
)
ANY_OBJECT = Limits(spaces=b" \n")


def schema_automaton(schema: Any, limits: Limits = LIMITS[0]) -> ByteAutomaton:
    """Return the byte automaton of a schema.

    Raises:
        ValueError: The schema is not supported, or allows no text.
        TooManyStates: It is too large.
    """
    if not isinstance(schema, dict | bool):
        raise ValueError(f"json_schema must be a JSON schema, got {short(schema)}")
    schemas = Schemas(schema, limits.longest, limits.letters)
    root: Conjunction = ((schemas.root, True),)
    free = schemas.of(root) == ({}, FREE.shapes[1:])  # any object
    return _Builder(schemas, ANY_OBJECT if free else limits).automaton(root)


def text_automaton(language: Dfa) -> ByteAutomaton:
    """Return the byte automaton of texts."""
    builder = _Builder(None, Limits())
    start = builder.characters(language, {END: 0}) if language.rows else builder.state({})
    return builder.ended(start)


class _Builder:
    def __init__(self, schemas: Any, limits: Limits) -> None:
        self._schemas: Schemas = schemas
        self._limits = limits
        self._rows: list[Row] = []
        self._moves = 0  # of texts, which have most of them
        self._open: Counter[Conjunction] = Counter()  # those that enclose the current one
        self._united: dict[frozenset[int], int] = {}
        self._tails: dict[object, int] = {}  # of characters of several bytes
        self._beginnings: dict[object, Row] = {}  # of such characters

    def automaton(self, conjunction: Conjunction) -> ByteAutomaton:
        """Return the automaton of a document."""
        row = self._value(conjunction, self.state({END: 0}))
        if not row:
            raise ValueError("json_schema allows no text, or only texts with deeper recursion than is built")
        return self.ended(self.state(row))

    def ended(self, start: int) -> ByteAutomaton:
        """Return the automaton that begins in a state."""
        accepting = [state for state, row in enumerate(self._rows) if row.pop(END, None) is not None]
        return self._rows, accepting, start

    def state(self, row: Row) -> int:
        """Add a state."""
        if len(self._rows) >= MOST_STATES:
            raise TooManyStates(f"json_schema needs more than {MOST_STATES} states: make it smaller")
        self._rows.append(row)
        return len(self._rows) - 1

    def _spaced(self, row: Row) -> Row:
        """Return a row before which one space may stand."""
        return {**dict.fromkeys(self._limits.spaces, self.state(row)), **row} if row else row

    def _union(self, rows: Iterable[Row]) -> Row:
        """Return the row of the texts that go on from any of several rows."""
        kept = [row for row in rows if row]
        if len(kept) < 2:
            return kept[0] if kept else {}
        waiting: list[tuple[Row, list[Row]]] = [(first := {}, kept)]
        for row, parts in waiting:  # grows while it is read
            targets: dict[int, set[int]] = {}
            for part in parts:
                for byte, to in part.items():
                    targets.setdefault(byte, set()).add(to)
            for byte, states in targets.items():
                key = frozenset(states)
                if len(key) > 1 and key not in self._united:
                    self._united[key] = self.state({})
                    waiting.append((self._rows[self._united[key]], [self._rows[state] for state in key]))
                row[byte] = self._united[key] if len(key) > 1 else min(key)
        return first

    def _value(self, conjunction: Conjunction, after: int) -> Row:
        """Return the row that begins a value, which ends before state `after`."""
        level = self._open[conjunction]
        if level >= self._limits.recursion and conjunction != ANYTHING:
            return {}
        self._open[conjunction] += 1
        values = self._schemas.of(conjunction)
        rows = [self._text(kind, language, after) for kind, language in values.texts.items()]
        for shape in values.shapes if conjunction != ANYTHING or level < self._limits.depth else ():
            rows.append(self._array(shape, after) if shape.kind == "array" else self._object(shape, after))
        self._open[conjunction] -= 1
        return self._union(rows)

    def _text(self, kind: str, language: Dfa, after: int) -> Row:
        """Return the row that begins a scalar."""
        if kind != "string":
            return self._rows[self.characters(language, self._rows[after])]
        return {QUOTE: self.characters(language, {QUOTE: after}, quoted=True)}

    def characters(self, language: Dfa, ended: Row, *, quoted: bool = False) -> int:
        """Return the first state of the texts of a language, which go on with the row `ended`."""
        first = len(self._rows)
        for _ in language.rows:
            self.state({})
        for place, row in enumerate(language.rows):
            made = self._rows[first + place]
            wide: list[tuple[tuple[tuple[int, int], ...], int]] = []
            for low, high, after in row:
                made |= dict.fromkeys(range(low, min(high, 0x7F) + 1), first + after)
                wide += [(ranges, first + after) for ranges in _utf8(max(low, 0x80), high)]
            escaped = {ESCAPES[byte][0]: made.pop(byte) for byte in ESCAPES.keys() & made.keys()} if quoted else {}
            if quoted and language is STRINGS:
                escaped |= {
                    ord("/"): first,
                    ord("u"): reduce(lambda to, _: self.state(dict.fromkeys(HEX, to)), range(4), first),
                }
            made |= self._first_bytes(tuple(wide))
            if escaped:
                made[0x5C] = self._tail(("escaped", *sorted(escaped.items())), escaped)
            if place in language.accepting:
                made |= ended
            self._moves += len(made)
        if self._moves > MOST_MOVES:
            raise TooManyStates(f"json_schema needs more than {MOST_MOVES} moves: make it smaller")
        return first

    def _tail(self, key: object, row: Row) -> int:
        if key not in self._tails:
            self._tails[key] = self.state(row)
        return self._tails[key]

    def _first_bytes(self, sequences: tuple[tuple[tuple[tuple[int, int], ...], int], ...]) -> Row:
        """Return the row of characters that are not ASCII, each a sequence of ranges of bytes and the state after it."""
        if sequences in self._beginnings:
            return self._beginnings[sequences]
        row: Row = {}
        cuts = sorted({cut for ranges, _ in sequences for cut in (ranges[0][0], ranges[0][1] + 1)})
        for low, end in pairwise(cuts):
            tails = tuple((ranges[1:], to) for ranges, to in sequences if ranges[0][0] <= low <= ranges[0][1])
            if tails:
                to = tails[0][1]
                if tails[0][0]:
                    to = self._tails[tails] if tails in self._tails else self._tail(tails, self._first_bytes(tails))
                row |= dict.fromkeys(range(low, end), to)
        self._beginnings[sequences] = row
        return row

    def _array(self, shape: Shape, after: int) -> Row:
        """Return the row that begins an array.

        A state stands for the number of items so far, up to the number from which all are alike, and
        for whether one of them is what `contains` asks for.
        """
        units = [self._schemas.elements(number) for number in shape.values("elements")]
        least, most = _bounds(shape)
        wanted = tuple((self._schemas.inner(number, "contains"), True) for number in shape.values("contains"))
        if len(wanted) > 1:
            raise self._schemas.refused(shape.values("contains")[1], "contains", "is not supported twice for the same array")
        if (unique := shape.values("unique")) and (most is None or most > 1):
            return self._unique_items(unique[0], units, least, most, after)
        top = max([least, *[len(prefix) for prefix, _ in units]]) if most is None else most
        items: dict[tuple[int, bool], Row] = {}
        states: dict[tuple[int, bool], int] = {}  # after an item
        for count in range(top, -1, -1):
            conjunction, more = _item(units, count), min(count + 1, top)
            for found in (True, False) if wanted else (True,):
                closing = {ord("]"): after} if found and count >= least else {}
                kinds = [(conjunction, found)] + ([] if found else [((*conjunction, *wanted), True)])
                comma = self.state({})  # filled below, because items may lead back here
                states[count, found] = self.state(self._spaced({**closing, **({} if count == most else {ord(","): comma})}))
                item = self._union([self._value(kind, states[more, have]) for kind, have in kinds if count != most])
                self._rows[comma] |= self._spaced(item)
                items[count, found] = {**item, **closing}
        return self._bracketed(b"[", items[0, not wanted])

    def _comma(self, row: Row) -> Row:
        """Return the row of a comma before another one."""
        return {ord(","): self.state(self._spaced(row))} if row else {}

    def _bracketed(self, bracket: bytes, row: Row) -> Row:
        return {bracket[0]: self.state(self._spaced(row))} if row else {}

    def _unique_items(
        self, number: int, units: Sequence[tuple[list[int], int | None]], least: int, most: int | None, after: int
    ) -> Row:
        """Return the row that begins an array of different scalars, of which there are few."""

        def choices(place: int) -> dict[tuple[str, Decimal | str], tuple[str, Dfa]]:
            values = self._schemas.of(_item(units, place))
            texts = [(kind, text) for kind, language in values.texts.items() for text in language.words(MOST_UNIQUE + 1)]
            found = {(kind, Decimal(text) if kind == "number" else text): (kind, dfa.words([text])) for kind, text in texts}
            if values.shapes or len(texts) > MOST_UNIQUE:
                raise self._schemas.refused(number, "uniqueItems", f"is only supported for at most {MOST_UNIQUE} values")
            return found

        @cache
        def item(used: frozenset[Hashable]) -> Row:
            fresh = choices(len(used)) if most is None or len(used) < most else {}
            return self._union([self._text(*fresh[value], state(used | {value})) for value in fresh if value not in used])

        @cache
        def state(used: frozenset[Hashable]) -> int:
            closing = {ord("]"): after} if len(used) >= least else {}
            return self.state(self._spaced({**closing, **self._comma(item(used))}))

        return self._bracketed(b"[", {**item(frozenset()), **({} if least else {ord("]"): after})})

    def _object(self, shape: Shape, after: int) -> Row:
        """Return the row that begins an object.

        After the named properties, in their order, those come whose names the schema does not state.
        A state stands for a place in this order and for the number of properties so far, as far as it matters.
        """
        required, names, allowed = {*shape.values("required")}, list[str](), shape.values("names")
        for number in shape.values("members"):
            names += self._schemas.value(number, "properties") or ()
        names = list(dict.fromkeys([*names, *shape.values("required")]))
        least, most = _bounds(shape)
        if most is None and least <= len(required):
            least = 0
        extras = self._extras(shape, names, allowed)
        counts = range((most if most is not None else least) + 1)

        def closing(count: int) -> Row:
            return {ord("}"): after} if count >= least else {}

        def more(count: int) -> int:
            return min(count + 1, least) if most is None else count + 1

        # By the number of properties so far: the row of further ones, and what may end the object.
        rest = {count: self._extra_members(extras, count, more, least, most, closing) for count in counts}
        ends = {count: closing(count) for count in counts}
        for name in reversed(names):
            conjunction = self._schemas.member(shape, name)
            named: dict[int, Row] = {}
            for count in counts if all(language.accepts(name) for language in allowed) else ():
                if (total := more(count)) in rest:
                    named[count] = self._named(name, conjunction, {**ends[total], **self._comma(rest[total])})
            if name in required:
                ends = {count: dict[int, int]() for count in counts}
            rest = {count: self._union([named.get(count, {}), {} if name in required else rest[count]]) for count in counts}
        return self._bracketed(b"{", {**rest[0], **ends[0]})

    def _named(self, name: str, conjunction: Conjunction, following: Row) -> Row:
        """Return the row of a property of this name, after which the object goes on with a row."""
        if not following or not (value := self._value(conjunction, self.state(self._spaced(following)))):
            return {}
        return self._rows[self.characters(dfa.words([json_text(name)]), self._colon(value))]

    def _colon(self, value: Row) -> Row:
        """Return the row between a name and its value."""
        return self._spaced({ord(":"): self.state(self._spaced(value))})

    def _extra_members(self, extras: Any, count: int, more: Any, least: int, most: int | None, closing: Any) -> Row:
        """Return the row of properties whose names the schema does not state."""
        total = more(count)
        if not extras or total < least or (most is not None and total > most):
            return {}  # a name may occur twice, so only the first of them counts
        comma = self.state({})
        state = self.state(self._spaced({**closing(total), ord(","): comma}))
        kinds: list[Row] = []
        for names, conjunction in extras:
            if value := self._value(conjunction, state):
                kinds.append({QUOTE: self.characters(names, {QUOTE: self.state(self._colon(value))}, quoted=True)})
        row = self._union(kinds)
        following = row if most is None else self._extra_members(extras, total, more, least, most, closing)
        self._rows[comma] |= self._spaced(following)
        return row

    def _extras(self, shape: Shape, names: Sequence[str], allowed: Sequence[Dfa]) -> list[tuple[Dfa, Conjunction]]:
        """Return languages of names that the schema does not state, with what their values must conform to."""
        free = dfa.difference(reduce(dfa.intersection, allowed, STRINGS), dfa.words(names))
        classes: list[tuple[Dfa, Conjunction]] = [(free, ())]
        for number in shape.values("members"):
            fields = self._schemas.known[number].fields
            split: list[tuple[Dfa, Conjunction, bool]] = [(each, parts, False) for each, parts in classes]
            for text in fields.get("patternProperties", ()):
                known = self._schemas.pattern(number, "patternProperties", text)
                part = (self._schemas.inner(number, "patternProperties", text), True)
                halves: list[tuple[Dfa, Conjunction, bool]]
                halves = [(dfa.intersection(each, known.matched), (*parts, part), True) for each, parts, _ in split]
                for each, parts, seen in split:
                    halves.append((dfa.difference(dfa.intersection(each, known.agreed), known.matched), parts, seen))
                split = [half for half in halves if half[0].rows]
                if len(split) > MOST_CLASSES:
                    raise self._schemas.refused(number, "patternProperties", f"makes more than {MOST_CLASSES} kinds of names")
            rest = [(self._schemas.inner(number, "additionalProperties"), True)] if "additionalProperties" in fields else []
            classes = [(each, parts if seen else (*parts, *rest)) for each, parts, seen in split]
        return classes if self._limits.extras or not names else [(each, parts) for each, parts in classes if parts]


def _item(units: Sequence[tuple[list[int], int | None]], place: int) -> Conjunction:
    """Return what the item at a place must conform to."""
    numbers = [prefix[place] if place < len(prefix) else rest for prefix, rest in units]
    return tuple(dict.fromkeys((number, True) for number in numbers if number is not None))


def _bounds(shape: Shape) -> tuple[int, int | None]:
    """Return the limits of the number of items or properties."""
    pairs = shape.values("count")
    return max([low for low, _ in pairs], default=0), min([high for _, high in pairs if high is not None], default=None)


@lru_cache(4096)
def _utf8(low: int, high: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Return a range of characters as sequences of ranges of bytes."""
    if low > high:
        return ()
    for most in (0x7F, 0x7FF, 0xD7FF, 0xDFFF, 0xFFFF):
        if low <= most < high:
            return _utf8(low, most) + _utf8(most + 1, high)
    if 0xD800 <= low <= 0xDFFF:  # half of a character in UTF-16
        return ()
    first, last = chr(low).encode(), chr(high).encode()
    for count in range(1, len(first)):
        mask = (1 << 6 * count) - 1
        if low & ~mask != high & ~mask:
            if low & mask:
                return _utf8(low, low | mask) + _utf8((low | mask) + 1, high)
            if high & mask != mask:
                return _utf8(low, (high & ~mask) - 1) + _utf8(high & ~mask, high)
    return (tuple(zip(first, last, strict=True)),)
