"""Build byte automata: of regexes and choices, and of JSON schemas.

Objects have their properties in the order of the schema. States are built from the end of a text to
its beginning: each value shows where it ends, so the automaton of a value needs only the state that
follows it. Alternatives are merged from their first byte on.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any, NamedTuple

from ..core.checks import short
from . import dfa
from .dfa import STRINGS, Dfa, Ranges, TooManyStates
from .json_schema import ANYTHING, FREE, Conjunction, Schema, Schemas, Shape

Row = dict[int, int]  # the next state by byte; without any, no text goes on
ByteAutomaton = tuple[list[Row], list[int], int]  # rows, accepting states, first state
END = 256  # in a row: the text may end
QUOTE = 0x22
MOST_CLASSES = 64  # of names that differ in what their values must be
MOST_STATES = 60_000
MOST_MOVES = 2_000_000  # about 150 MB


class Limits(NamedTuple):
    """Limits of an automaton, which are lowered for a large schema."""

    recursion: int = 3  # how often a schema may contain itself
    depth: int = 3  # nested objects and arrays in a value of any kind
    longest: int = 4096  # of strings that have a maximum
    letters: Ranges = dfa.LETTERS  # of strings with limits of their length
    extras: bool = True  # properties that the schema does not name and about which it says nothing
    spaces: bytes = b" "  # of which one may stand around brackets, commas and colons


# Tried in this order until an automaton is small enough.
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
    spelled = dfa.spelled(language)
    return [_bytes(row, 0) for row in spelled.rows] or [{}], [*spelled.accepting], 0


class _Builder:
    def __init__(self, schemas: Any, limits: Limits) -> None:
        self._schemas: Schemas = schemas
        self._limits = limits
        self._rows: list[Row] = []
        self._moves = 0  # of texts, which have most of the moves
        self._open: Counter[Conjunction] = Counter()  # those that enclose the current one
        self._united: dict[frozenset[int], int] = {}

    def automaton(self, conjunction: Conjunction) -> ByteAutomaton:
        """Return the automaton of a document."""
        row = self._value(conjunction, self._state({END: 0}))
        if not row:
            raise ValueError("json_schema allows no text, or only texts with deeper recursion than is built")
        start = self._state(row)
        accepting = [state for state, row in enumerate(self._rows) if row.pop(END, None) is not None]
        return self._rows, accepting, start

    def _state(self, row: Row) -> int:
        """Add a state."""
        if len(self._rows) >= MOST_STATES:
            raise TooManyStates(f"json_schema needs more than {MOST_STATES} states: make it smaller")
        self._rows.append(row)
        return len(self._rows) - 1

    def _spaced(self, row: Row) -> Row:
        """Return the row with an optional space before it."""
        return {**dict.fromkeys(self._limits.spaces, self._state(row)), **row} if row else row

    def _union(self, rows: Iterable[Row]) -> Row:
        """Return the union of several rows: it accepts the texts that any of them accepts."""
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
                    self._united[key] = self._state({})
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
            return self._rows[self._characters(dfa.spelled(language), self._rows[after])]
        return self._quoted(language, {QUOTE: after})

    def _quoted(self, language: Dfa, ended: Row) -> Row:
        """Return the row that begins a string, whose content ends with the row `ended`."""
        spelled = dfa.spelled(language, quoted=True)
        return {QUOTE: self._characters(spelled, ended)} if spelled.rows else {}

    def _characters(self, spelled: Dfa, ended: Row) -> int:
        """Return the first state of the texts of an automaton over bytes, which go on with the row `ended`."""
        first = len(self._rows)
        for place, row in enumerate(spelled.rows):
            made = _bytes(row, first) | (ended if place in spelled.accepting else {})
            self._state(made)
            self._moves += len(made)
        if self._moves > MOST_MOVES:
            raise TooManyStates(f"json_schema needs more than {MOST_MOVES} moves: make it smaller")
        return first

    def _array(self, shape: Shape, after: int) -> Row:
        """Return the row that begins an array.

        A state records the number of items so far, up to the number from which all items are alike, and
        whether one of them satisfies `contains`.
        """
        units = [self._schemas.elements(schema) for schema in shape.values("elements")]
        least, most = _bounds(shape)
        wanted = tuple((self._schemas.inner(schema, "contains"), True) for schema in shape.values("contains"))
        if len(wanted) > 1:
            raise shape.values("contains")[1].refused("contains", "is not supported twice for the same array")
        top = max([least, *[len(prefix) for prefix, _ in units]]) if most is None else most
        items: dict[tuple[int, bool], Row] = {}
        states: dict[tuple[int, bool], int] = {}  # after an item
        for count in range(top, -1, -1):
            conjunction, more = _item(units, count), min(count + 1, top)
            for found in (True, False) if wanted else (True,):
                closing = {ord("]"): after} if found and count >= least else {}
                kinds = [(conjunction, found)] + ([] if found else [((*conjunction, *wanted), True)])
                comma = self._state({})  # filled below, because items may lead back here
                states[count, found] = self._state(self._spaced({**closing, **({} if count == most else {ord(","): comma})}))
                item = self._union([self._value(kind, states[more, have]) for kind, have in kinds if count != most])
                self._rows[comma] |= self._spaced(item)
                items[count, found] = {**item, **closing}
        return self._bracketed(b"[", items[0, not wanted])

    def _comma(self, row: Row) -> Row:
        """Return the row of a comma before another one."""
        return {ord(","): self._state(self._spaced(row))} if row else {}

    def _bracketed(self, bracket: bytes, row: Row) -> Row:
        return {bracket[0]: self._state(self._spaced(row))} if row else {}

    def _object(self, shape: Shape, after: int) -> Row:
        """Return the row that begins an object.

        The named properties come first, in their order; those that the schema does not name follow.
        A state records the place in this order and, as far as it matters, the number of properties so far.
        """
        required, allowed = {*shape.values("required")}, shape.values("names")
        named = [name for schema in shape.values("members") for name in schema.fields.get("properties", ())]
        names = [*dict.fromkeys([*named, *shape.values("required")])]
        least, most = _bounds(shape)
        if most is None and least <= len(required):
            least = 0
        top = least if most is None else most
        others = self._others(shape, names, allowed)
        # By the number of properties so far: what may end the object, and the row of further properties.
        ends = {count: {ord("}"): after} if count >= least else Row() for count in range(top + 1)}
        rest: dict[int, Row] = {}
        for count in range(top, -1, -1):
            rest[count] = {}
            if count != most and count + 1 >= least:  # a name may occur twice, so only the first of them counts
                comma = self._state({})  # filled below, because properties may lead back here
                state = self._state(self._spaced({ord("}"): after, ord(","): comma}))
                rest[count] = self._union([self._member(language, part, state) for language, part in others])
                self._rows[comma] |= self._spaced(rest[min(count + 1, top)])
        for name in reversed(names):
            conjunction = self._schemas.member(shape, name)
            row_of: dict[int, Row] = {}
            for count in range(top + 1) if all(language.accepts(name) for language in allowed) else ():
                total = min(count + 1, top)
                if count != most and (following := {**ends[total], **self._comma(rest[total])}):
                    row_of[count] = self._member(dfa.words([name]), conjunction, self._state(self._spaced(following)))
            if name in required:
                ends, rest = dict.fromkeys(ends, Row()), dict.fromkeys(rest, Row())
            rest = {count: self._union([row_of.get(count, {}), row]) for count, row in rest.items()}
        return self._bracketed(b"{", {**rest[0], **ends[0]})

    def _member(self, names: Dfa, conjunction: Conjunction, after: int) -> Row:
        """Return the row of a property with one of some names, which ends before state `after`."""
        if not (value := self._value(conjunction, after)):
            return {}
        colon = self._spaced({ord(":"): self._state(self._spaced(value))})
        return self._quoted(names, {QUOTE: self._state(colon)})

    def _others(self, shape: Shape, names: Sequence[str], allowed: Sequence[Dfa]) -> list[tuple[Dfa, Conjunction]]:
        """Return languages of names that the schema does not name, with what their values must conform to."""
        kinds = [dfa.difference(reduce(dfa.intersection, allowed, STRINGS), dfa.words(names))]
        for schema in shape.values("members"):
            for text in schema.fields.get("patternProperties", ()):
                known = self._schemas.pattern(schema, "patternProperties", text)
                kinds = [
                    part
                    for kind in kinds
                    for part in (
                        dfa.intersection(kind, known.matched),
                        dfa.difference(dfa.intersection(kind, known.agreed), known.matched),
                    )
                    if part.rows
                ]
                if len(kinds) > MOST_CLASSES:
                    raise schema.refused("patternProperties", f"makes more than {MOST_CLASSES} kinds of names")
        found = [(kind, self._schemas.member(shape, kind.example)) for kind in kinds if kind.rows]
        return [each for each in found if each[1] or self._limits.extras or not names]


def _bytes(row: dfa.Row, first: int) -> Row:
    """Return the row with a move for each byte, to states that are numbered from `first` on."""
    return {byte: first + to for low, high, to in row for byte in range(low, high + 1)}


def _item(units: Sequence[tuple[list[Schema], Schema | None]], place: int) -> Conjunction:
    """Return what the item at a place must conform to."""
    found = [prefix[place] if place < len(prefix) else rest for prefix, rest in units]
    return tuple(dict.fromkeys((schema, True) for schema in found if schema is not None))


def _bounds(shape: Shape) -> tuple[int, int | None]:
    """Return the limits of the number of items or properties."""
    pairs = shape.values("count")
    return max([low for low, _ in pairs], default=0), min([high for _, high in pairs if high is not None], default=None)
