"""Build the byte automata of JSON schemas.

Objects have their properties in the order of the schema. A nondeterministic automaton is built from
the beginning of a text to its end, with separate states for each place of a value, and then made
deterministic.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import Any, NamedTuple, TypeVar

from ..core import short
from . import dfa
from .dfa import STRINGS, Dfa, Nfa, TooManyStates
from .json_schema import ANYTHING, NEVER, Conjunction, Schema, Schemas, Shape

MOST_STATES = 60_000  # before the automaton is made deterministic
Found = frozenset[int]  # those conditions on some element that an element has met
Place = TypeVar("Place", bound=Hashable)  # a place in an array or object, such as the number of items before it
# A step from a place: a function that adds an element after a state and returns the state after the element (None: there is
# no element), and the next place.
Element = tuple[Callable[[int], int] | None, Place]


class Limits(NamedTuple):
    """Limits of an automaton, which are lowered for a large schema."""

    recursion: int = 4  # how often a schema may contain itself
    depth: int = 3  # nested objects and arrays in a value of any kind
    longest: int = 4096  # of strings that have a maximum
    letters: str = dfa.LETTERS  # characters of strings whose length is limited
    extras: bool = True  # properties that the schema does not name and about which it says nothing


# Tried in this order until an automaton is small enough.
LIMITS = (
    Limits(),
    Limits(3, 2, 512),
    Limits(2, 1, 128, dfa.ASCII),
    Limits(2, 0, 64, dfa.ASCII, extras=False),
    Limits(1, 0, 64, dfa.ASCII, extras=False),
)


def schema_automaton(schema: Any, limits: Limits = LIMITS[0]) -> Dfa:
    """Return the byte automaton of a schema.

    Raises:
        ValueError: The schema is not supported, or allows no text.
        TooManyStates: It is too large.
    """
    if not isinstance(schema, dict | bool):
        raise ValueError(f"json_schema must be a JSON schema, got {short(schema)}")
    schemas = Schemas(schema, limits.longest, limits.letters)
    root: Conjunction = ((schemas.root, True),)
    builder = _Builder(schemas, limits)
    start = builder.state()
    try:
        automaton = builder.determined(start, builder.value(root, start))
    except TooManyStates as error:
        raise TooManyStates(f"{error}{builder.largest}") from error
    if not automaton.rows:
        raise ValueError("json_schema allows no text, or only texts with deeper recursion than is built")
    return replace(automaton, largest=builder.largest)


class _Builder(Nfa):
    """The automaton of a schema. Methods add a part of a text after a state and return the state after it."""

    def __init__(self, schemas: Schemas, limits: Limits) -> None:
        super().__init__(MOST_STATES)
        self._schemas = schemas
        self._limits = limits
        self._open: Counter[Conjunction] = Counter()  # those that enclose the current one
        self._sizes: Counter[str] = Counter()  # states by the path of a schema

    def value(self, conjunction: Conjunction, state: int) -> int:
        """Add the values that conform to a conjunction."""
        level = self._open[conjunction]
        if level >= self._limits.recursion and conjunction != ANYTHING:
            return self.state()  # no move leads to it, so it adds no text
        self._open[conjunction] += 1
        values, before = self._schemas.of(conjunction), len(self.moves)
        try:
            ends = [
                self._string(language, state) if kind == "string" else self.language(dfa.spelled(language), state)
                for kind, language in values.texts.items()
            ]
            for shape in values.shapes if conjunction != ANYTHING or level < self._limits.depth else ():
                ends.append(self._array(shape, state) if shape.kind == "array" else self._object(shape, state))
        finally:
            for schema, _ in conjunction[:1]:
                self._sizes[schema.path] += len(self.moves) - before
        self._open[conjunction] -= 1
        return self.state(*ends)

    @property
    def largest(self) -> str:
        """The path of the innermost schema with more than half of the states, as the end of a message."""
        paths = [path for path, size in self._sizes.items() if 2 * size > len(self.moves)]
        return f" ({max(paths, key=len)} takes most of them)" if paths else ""

    def _string(self, language: Dfa, state: int) -> int:
        free = language is STRINGS and self._limits.letters == dfa.LETTERS  # may have several spellings
        content = dfa.spelled(dfa.JSON_STRINGS) if free else dfa.spelled(language, quoted=True)
        return self.path(self.language(content, self.path(state, b'"')), b'"')

    def _spaced(self, state: int) -> int:
        """Add an optional space."""
        return self.state(state, self.path(state, b" "))

    def _sequence(
        self,
        brackets: bytes,
        first: Place,
        elements: Callable[[Place], Iterable[Element[Place]]],
        ends: Callable[[Place], bool],
        state: int,
    ) -> int:
        """Add arrays or objects, whose elements lead from the place `first` to a place for which `ends` holds."""
        places: list[Place] = []
        states: dict[Place, tuple[int, int]] = {}  # by place: the states before the next and after the previous element

        def entered(place: Place) -> tuple[int, int]:
            if place not in states:
                before, after = states[place] = self.state(), self.state()
                self.link(self._spaced(self.path(after, b",")), before)
                places.append(place)
            return states[place]

        opened = self._spaced(self.path(state, brackets[:1]))
        self.link(opened, entered(first)[0])
        for place in places:  # grows while it is read
            for add, to in elements(place):
                (here, _), (before, after) = states[place], entered(to)
                if add is None:
                    self.link(here, before)
                else:
                    self.link(self._spaced(add(here)), after)
        closing = [states[place][1] for place in places if ends(place)] + ([opened] if ends(first) else [])
        return self.path(self.state(*closing), brackets[1:])

    def _array(self, shape: Shape, state: int) -> int:
        """Add arrays.

        A place is the number of items so far, up to the number from which all items are alike, and
        the conditions of `contains` that an item has met.
        """
        units = [self._schemas.elements(schema) for schema in shape.values("elements")]
        least, most = _bounds(shape)
        wanted = shape.values("contains")
        top = max([least, *[len(prefix) for prefix, _ in units], *[low + 1 for low, *_ in wanted]]) if most is None else most

        def elements(place: tuple[int, Found]) -> Iterator[Element[tuple[int, Found]]]:
            count, found = place
            fitting = [
                (number, more)
                for number, (low, high, more) in enumerate(wanted)
                if low <= count and (high is None or count <= high)
            ]
            for conjunction, reached in _options(_item(units, count), found, fitting) if count != most else ():
                yield partial(self.value, conjunction), (min(count + 1, top), reached)

        def ends(place: tuple[int, Found]) -> bool:
            return place[0] >= least and len(place[1]) == len(wanted)

        return self._sequence(b"[]", (0, frozenset()), elements, ends, state)

    def _object(self, shape: Shape, state: int) -> int:
        """Add objects.

        The named properties come first, in their order; those that the schema does not name follow.
        A place is an index in this order, the number of properties so far, as far as it matters, and
        the conditions that a property has met.
        """
        required, allowed, wanted = {*shape.values("required")}, shape.values("names"), shape.values("has")
        named = [name for schema in shape.values("members") for name in schema.fields.get("properties", ())]
        names = [*dict.fromkeys([*named, *shape.values("required")])]
        least, most = _bounds(shape)
        if most is None and least <= len(required):
            least = 0
        top = least if most is None else most
        others = self._others(shape, names, allowed, [language for language, _ in wanted])
        needed = max([index + 1 for index, name in enumerate(names) if name in required], default=0)
        # Other names may repeat. So the names that count for `minProperties` are in different languages, in any order.
        parts = dfa.parted(max(1, least - len(required)))

        def elements(first: int, place: tuple[int, int, Found]) -> Iterator[Element[tuple[int, int, Found]]]:
            index, count, found = place
            members = [(dfa.words([name]), self._schemas.member(shape, name)) for name in names[index : index + 1]]
            if members and names[index] not in required:
                yield None, (index + 1, count, found)
            if (members and not all(language.accepts(names[index]) for language in allowed)) or count == most:
                return
            more = min(count + 1, top)
            if not members:
                part = parts[(first + count) % len(parts)] if count < least else STRINGS
                members = [(both, other) for language, other in others if (both := dfa.intersection(language, part)).rows]
            for language, conjunction in members:
                fitting = [(number, part) for number, (fit, part) in enumerate(wanted) if fit.accepts(language.example)]
                for full, reached in _options(conjunction, found, fitting):
                    yield partial(self._member, language, full), (min(index + 1, len(names)), more, reached)

        def ends(place: tuple[int, int, Found]) -> bool:
            return place[0] >= needed and place[1] >= least and len(place[2]) == len(wanted)

        firsts = [partial(elements, first) for first in range(len(parts))]
        return self.state(*[self._sequence(b"{}", (0, 0, frozenset[int]()), each, ends, state) for each in firsts])

    def _member(self, names: Dfa, conjunction: Conjunction, state: int) -> int:
        """Add a property whose name is in the language `names`."""
        colon = self.path(self._spaced(self._string(names, state)), b":")
        return self.value(conjunction, self._spaced(colon))

    def _others(
        self, shape: Shape, names: Sequence[str], allowed: Sequence[Dfa], apart: Sequence[Dfa]
    ) -> list[tuple[Dfa, Conjunction]]:
        """Return languages of names that the schema does not name, with what their values must conform to.

        Each of them is inside a language of `apart`, or outside it.
        """
        kinds = [dfa.difference(reduce(dfa.intersection, allowed, STRINGS), dfa.words(names))]
        divisions = [[language, dfa.difference(STRINGS, language)] for language in apart]
        for schema in shape.values("members"):
            for text in schema.fields.get("patternProperties", ()):
                divisions.append(
                    [self._schemas.pattern(schema, "patternProperties", text, holds=holds) for holds in (True, False)]
                )
        for division in divisions:
            kinds = [part for kind in kinds for each in division if (part := dfa.intersection(kind, each)).rows]
        found = [(kind, self._schemas.member(shape, kind.example)) for kind in kinds if kind.rows]
        found = [each for each in found if all(part.fields != NEVER for part, _ in each[1])]
        return [each for each in found if each[1] or self._limits.extras or not names]


def _options(
    conjunction: Conjunction, found: Found, conditions: Iterable[tuple[int, Conjunction]]
) -> list[tuple[Conjunction, Found]]:
    """Return what an element may conform to, each with the conditions that have been met then."""
    options = [(conjunction, found)]
    for number, more in conditions:
        met = [((*parts, *more), some | {number}) for parts, some in options]
        options = (options if more or number in found else []) + (met if number not in found else [])
    return options


def _item(units: Sequence[tuple[list[Schema], Schema | None]], place: int) -> Conjunction:
    """Return what the item at a place must conform to."""
    found = [prefix[place] if place < len(prefix) else rest for prefix, rest in units]
    return tuple(dict.fromkeys((schema, True) for schema in found if schema is not None))


def _bounds(shape: Shape) -> tuple[int, int | None]:
    """Return the limits of the number of items or properties."""
    pairs = shape.values("count")
    return max([low for low, _ in pairs], default=0), min([high for _, high in pairs if high is not None], default=None)
