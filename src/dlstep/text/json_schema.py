"""Read JSON schemas: which values conform, as texts of scalars and shapes of arrays and objects.

A value conforms to a `Conjunction` if it conforms to each of its parts: a schema, or the negation of
one. Where not all values can be described, as in negations, `Values` has fewer values, never more.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache, reduce
from itertools import permutations
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ..core import Fields, short
from . import dfa
from .dfa import NUMBERS, STRINGS, Dfa, TooManyStates

if TYPE_CHECKING:
    from referencing._core import Resolver

MOST_SHAPES = 5_000  # of one conjunction
MOST_UNIQUE = 5  # values that the items of an array with unique items may have
LARGEST_STEP = 2_000
LONGEST_MESSAGE = 200


@dataclass(frozen=True, eq=False, slots=True)
class Schema:
    """A schema of the document, which is compared by identity."""

    fields: Fields
    path: str
    resolver: "Resolver[Any]"
    draft: Any
    """The validator class of `jsonschema` for the draft of the schema; it lists the draft's keywords."""

    def refused(self, keyword: str, why: str = "is not supported: leave it out") -> ValueError:
        """Return the error for a keyword."""
        return ValueError(f"{self.path}.{keyword} {why}")


Part = tuple[Schema, bool]  # whether a value must conform to it
Conjunction = tuple[Part, ...]
ANYTHING: Conjunction = ()


class Fact(NamedTuple):
    """A condition on an array or object."""

    name: str
    value: Any


class Shape(NamedTuple):
    """Arrays or objects for which all facts hold."""

    kind: str
    facts: tuple[Fact, ...] = ()

    def values(self, name: str) -> list[Any]:
        """Return the values of the facts with this name."""
        return [fact.value for fact in self.facts if fact.name == name]


class Values(NamedTuple):
    """JSON values: by type, the texts of scalars (of strings, their content); and shapes."""

    texts: Mapping[str, Dfa] = {}
    shapes: tuple[Shape, ...] = ()

    @classmethod
    def of(cls, texts: Mapping[str, Dfa], shapes: Iterable[Shape] = ()) -> "Values":
        """Return values; leave out types without texts and repeated shapes."""
        return cls({kind: text for kind, text in texts.items() if text.rows}, tuple(dict.fromkeys(shapes)))


FREE_NUMBERS = dfa.regex(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,6})?([eE][+-]?[0-9]{1,2})?")
SCALARS = {"null": dfa.words(["null"]), "boolean": dfa.words(["true", "false"]), "number": FREE_NUMBERS, "string": STRINGS}
WHOLE = (FREE_NUMBERS, STRINGS)  # unrestricted: the intersection with another language of the type is that language
FREE = Values(SCALARS, (Shape("array"), Shape("object")))
NONE = Values()


class CircularError(ValueError):
    """Error for a schema whose meaning depends on itself."""


class Schemas:
    """The schemas of a document. Raises ValueError, with the path of the cause, for what is not supported.

    Args:
        root: The document.
        longest: Maximum length of strings that have a maximum.
        letters: Characters of strings that have a limit of their length.
    """

    def __init__(self, root: Any, longest: int, letters: str) -> None:
        from jsonschema import Draft202012Validator
        from referencing import Registry

        self.longest, self.letters, self.newest = longest, letters, Draft202012Validator
        self._known: dict[int, Schema] = {}  # by the identity of the fields
        self._parts: dict[Part, Values] = {}
        self._values: dict[Conjunction, Values] = {}
        self._open: set[Part] = set()
        root = json.loads(json.dumps(root, allow_nan=False), parse_float=_number)  # without parts that are one object
        draft = _draft(root, self.newest)
        outer = Schema({}, "json_schema", Registry[Any]().resolver_with_root(_resource(root, draft)), draft)
        self.root = self.followed(self.add(root, outer))

    def add(self, value: Any, outer: Schema, *names: object) -> Schema:
        """Return the schema inside another one to which `names` lead."""
        if isinstance(value, bool):
            value = ALWAYS if value else NEVER
        if id(value) not in self._known:
            path, draft = ".".join([outer.path, *map(str, names)]), _draft(value, outer.draft)
            if not names or "$schema" in value:
                _check(value, path, draft)
            resolver = outer.resolver.in_subresource(_resource(value, draft))
            self._known[id(value)] = Schema(value, path, resolver, draft)
        return self._known[id(value)]

    def inner(self, schema: Schema, *names: Any) -> Schema:
        """Return the schema to which `names` lead inside another one."""
        return self.followed(self.add(reduce(lambda value, name: value[name], names, schema.fields), schema, *names))

    def followed(self, schema: Schema) -> Schema:
        """Follow schemas that are only a `$ref`, and return the target, so that all references to it count as the same part."""
        passed = list[Schema]()
        while _keywords(schema) == ["$ref"]:
            if schema in passed:
                raise CircularError(f"{schema.path}.$ref leads back to itself")
            passed.append(schema)
            schema = self.target(schema)
        return schema

    def listed(self, schema: Schema, keyword: str) -> list[Schema]:
        """Return the schemas that a keyword lists."""
        return [self.inner(schema, keyword, index) for index in range(len(schema.fields[keyword]))]

    def of(self, conjunction: Conjunction) -> Values:
        """Return the values that conform."""
        if conjunction not in self._values:
            self._values[conjunction] = reduce(self._both, map(self._part, conjunction), FREE)
        return self._values[conjunction]

    def any_of(self, conjunctions: Iterable[Conjunction]) -> Values:
        """Return the values that conform to one of several conjunctions."""
        return _either([self.of(conjunction) for conjunction in conjunctions])

    def _part(self, part: Part) -> Values:
        if part not in self._parts:
            schema, holds = part
            if part in self._open:
                raise CircularError(f"{schema.path}.$ref leads back to itself")
            self._open.add(part)
            try:
                read = [_READ[name](Keyword(self, schema, name, holds)) for name in _keywords(schema)]
                self._parts[part] = reduce(self._both, read, FREE) if holds else _either(read)
            except TooManyStates as error:
                raise error if str(error).startswith("json_schema") else TooManyStates(f"{schema.path}: {error}") from error
            finally:
                self._open.discard(part)
        return self._parts[part]

    def _both(self, one: Values, other: Values) -> Values:
        """Return the values that are in both."""
        if one is FREE or other is FREE:
            return other if one is FREE else one
        texts = {kind: _met(one.texts[kind], other.texts[kind]) for kind in one.texts if kind in other.texts}
        shapes: dict[Shape, None] = {}
        for shape in one.shapes:
            fitting = [each for each in other.shapes if each.kind == shape.kind]
            if any(self._implies(shape, each) for each in fitting):
                shapes[shape] = None  # what it has in common with the others is a part of it
                continue
            met = (Shape(shape.kind, tuple(dict.fromkeys(shape.facts + each.facts))) for each in fitting)
            shapes |= dict.fromkeys(each for each in met if not self._contradicts(each))
            if len(shapes) > MOST_SHAPES:
                raise TooManyStates(f"it combines more than {MOST_SHAPES} alternatives: make it smaller")
        return Values.of(texts, shapes)

    def _contradicts(self, shape: Shape) -> bool:
        """Return whether the shape requires a property that it forbids."""
        required = {*shape.values("required")}
        members = [schema.fields.get("properties", {}) for schema in shape.values("members")]
        return any(fields.get(name) in (False, NEVER) for fields in members for name in required & fields.keys())

    def _implies(self, shape: Shape, other: Shape) -> bool:
        """Return whether all values of a shape are known to have the other shape."""
        try:
            return all(fact in shape.facts or self._conforms(shape, fact) for fact in other.facts)
        except CircularError:
            return False

    def _conforms(self, shape: Shape, fact: Fact) -> bool:
        """Return whether the single property that a fact describes is known to conform in all values of a shape."""
        fields = fact.value.fields if fact.name == "members" else {}
        if len(names := fields.get("properties", ())) != 1 or fields.keys() & {"patternProperties", "additionalProperties"}:
            return False
        (name,) = names
        found, allowed = self.of(self.member(shape, name)), self.of(((self.inner(fact.value, "properties", name), True),))
        return all(
            not dfa.difference(texts, allowed.texts.get(kind, dfa.EMPTY)).rows for kind, texts in found.texts.items()
        ) and all(any(self._implies(one, each) for each in allowed.shapes if each.kind == one.kind) for one in found.shapes)

    def member(self, shape: Shape, name: str) -> Conjunction:
        """Return what the value of a property must conform to."""
        parts: list[Schema] = []
        for schema in shape.values("members"):
            fields = schema.fields
            found: list[tuple[str, ...]] = [("properties", name)] if name in fields.get("properties", ()) else []
            for text in fields.get("patternProperties", ()):
                if self.pattern(schema, "patternProperties", text).accepts(name):
                    found.append(("patternProperties", text))
                elif not self.pattern(schema, "patternProperties", text, holds=False).accepts(name):
                    raise schema.refused(f"patternProperties={short(text)}", f"is not supported with the name {short(name)}")
            if not found and "additionalProperties" in fields:
                found = [("additionalProperties",)]
            parts += [self.inner(schema, *names) for names in found]
        return tuple(dict.fromkeys((part, True) for part in parts))

    def elements(self, schema: Schema) -> tuple[list[Schema], Schema | None]:
        """Return the schemas of the first items of arrays, and that of all others."""
        fields, first = schema.fields, "prefixItems" if "prefixItems" in schema.draft.VALIDATORS else "items"
        listed = isinstance(fields.get(first), list)
        rest = "additionalItems" if listed and first == "items" else "items"
        return self.listed(schema, first) if listed else [], self.inner(schema, rest) if rest in fields else None

    def pattern(self, schema: Schema, keyword: str, text: str, *, holds: bool = True) -> Dfa:
        """Return the automaton of the strings in which a regex finds a match, or finds none."""
        try:
            found = dfa.pattern(text, holds=holds)
            return found if self.letters == dfa.LETTERS else dfa.intersection(found, dfa.regex(f"{self.letters}*"))
        except ValueError as error:
            raise schema.refused(f"{keyword}={short(text)}", f"is not supported: {error}") from error

    def target(self, schema: Schema) -> Schema:
        """Return the schema to which the reference of a schema leads."""
        from referencing.exceptions import Unresolvable

        reference = schema.fields["$ref"]
        try:
            found = schema.resolver.lookup(reference)
        except (Unresolvable, AttributeError, TypeError) as error:
            raise schema.refused(f"$ref={short(reference)}", "does not lead to a part of this document") from error
        return self.add(found.contents, Schema({}, f"json_schema.{reference}", found.resolver, schema.draft))


ALWAYS: Fields = {}
NEVER: Fields = {"type": []}


def _number(text: str) -> float:
    """Return a number of the document; a whole number as an integer, the form in which it is compared and written."""
    value = float(text)
    return int(value) if value.is_integer() else value


def _draft(fields: Any, outer: Any) -> Any:
    """Return the draft by which a schema is read."""
    from jsonschema import Draft3Validator, Draft4Validator
    from jsonschema.validators import validator_for

    stated = isinstance(fields, dict) and isinstance(fields.get("$schema"), str)
    draft = validator_for(fields, outer) if stated else outer
    return Draft4Validator if draft is Draft3Validator else draft  # draft 4 refuses the forms that only draft 3 has


def _resource(fields: Any, draft: Any) -> Any:
    from referencing.jsonschema import specification_with

    return specification_with(draft.META_SCHEMA["$schema"]).create_resource(fields)


def _check(fields: Any, path: str, draft: Any) -> None:
    """Raise ValueError if a schema does not have the form of its draft. Schemas inside it may state other drafts."""
    inside = {name: _of_one_draft(part) for name, part in fields.items()}
    if fault := _fault(json.dumps(inside), draft):
        raise ValueError(f"{path}{fault}")


@lru_cache(16)  # the document is read again for each attempt with smaller limits
def _fault(text: str, draft: Any) -> str:
    """Return the place and the fault as the end of an error message; an empty text if the schema is well-formed."""
    from jsonschema.exceptions import best_match

    error = best_match(draft(draft.META_SCHEMA).iter_errors(json.loads(text)))
    if error is None:
        return ""
    return f"{''.join(f'.{step}' for step in error.absolute_path)} is malformed: {error.message[:LONGEST_MESSAGE]}"


def _of_one_draft(value: Any) -> Any:
    """Return a part of a schema without the schemas that state their draft."""
    if isinstance(value, dict):
        stated = isinstance(value.get("$schema"), str)
        return {} if stated else {name: _of_one_draft(part) for name, part in value.items()}
    return [_of_one_draft(part) for part in value] if isinstance(value, list) else value


def _keywords(schema: Schema) -> list[str]:
    """Return the keywords of a schema that have an effect in its draft. Raises ValueError if one is unsupported."""
    fields, known = schema.fields, schema.draft.VALIDATORS
    if "$ref" in fields and "dependencies" in known:  # up to draft 7, keywords next to it have no effect
        return ["$ref"]
    for name in fields.keys() & known.keys() - _READ.keys():
        if fields[name] is not True:
            raise schema.refused(name)
    return [name for name in _READ if name in fields and name in known]


def _met(one: Dfa, other: Dfa) -> Dfa:
    if one in WHOLE or other in WHOLE:
        return other if one in WHOLE else one
    return dfa.intersection(one, other)


def _either(values: Iterable[Values]) -> Values:
    """Return the values that are in any."""
    texts, shapes = dict[str, Dfa](), list[Shape]()
    for one in values:
        texts |= {kind: dfa.union(texts.get(kind, dfa.EMPTY), text) for kind, text in one.texts.items()}
        shapes += one.shapes
    return Values.of(texts, shapes)


class Keyword(NamedTuple):
    """A keyword of a schema, which must hold or must not hold."""

    schemas: Schemas
    schema: Schema
    name: str
    holds: bool

    @property
    def value(self) -> Any:
        """The value of the keyword."""
        return self.schema.fields[self.name]

    def part(self, *names: Any, holds: bool) -> Part:
        """Return the part for the schema to which `names` lead in the value; `holds`: whether values must conform to it."""
        return self.schemas.inner(self.schema, self.name, *names), holds

    def made(self, fields: Fields) -> Part:
        """Return the part for a new schema with these fields, read as if it were in the value."""
        return self.schemas.add(fields, self.schema, self.name), True

    def broken(self, name: str, kind: str, *conditions: tuple[Any, ...]) -> Values:
        """Return the arrays or objects (`kind`) that violate the keyword: one of several facts with this name holds.

        A condition is the value of a fact, whose last entry is the schema that an element violates.
        """
        shapes = [
            Shape(kind, (Fact(name, (*where, () if schema.fields == NEVER else ((schema, False),))),))
            for *where, schema in conditions
            if schema.fields != ALWAYS
        ]
        return Values({}, tuple(shapes))

    def fact(self, kind: str, *facts: Fact) -> Values:
        """Return values of other types, and those of type `kind` for which facts hold; none if the keyword must not hold."""
        shapes = [Shape(each.kind, facts if each.kind == kind else ()) for each in FREE.shapes]
        return Values.of(FREE.texts, shapes) if self.holds else NONE


# Keywords: the values for which one holds, or does not hold.
Reading = Callable[[Keyword], Values]


def _scalar(kind: str, languages: Callable[[Keyword], tuple[Dfa, Dfa]]) -> Reading:
    """Return the reading of a keyword; `languages` are the texts for which it holds, and all texts that it decides."""

    def read(keyword: Keyword) -> Values:
        matched, decided = languages(keyword)
        if keyword.holds:
            return Values.of({**FREE.texts, kind: matched}, FREE.shapes)
        return Values.of({kind: dfa.difference(decided, matched)})

    return read


def _limit(keyword: Keyword) -> tuple[Dfa, Dfa]:
    limit, name = keyword.value, keyword.name
    if isinstance(limit, bool):  # in draft 4: whether `minimum` or `maximum` is excluded
        return NUMBERS, NUMBERS
    less, equal, greater = dfa.compared(Decimal(repr(limit)))
    beyond = greater if name.lower().endswith("minimum") else less
    strict = name.startswith("exclusive") or keyword.schema.fields.get(f"exclusive{name.title()}") is True
    return beyond if strict else dfa.union(beyond, equal), NUMBERS


def _multiples(keyword: Keyword) -> tuple[Dfa, Dfa]:
    step = Decimal(repr(keyword.value))
    places = max(0, -int(step.as_tuple().exponent))
    scaled = int(step.scaleb(places))
    if step != Decimal(keyword.value) or scaled > LARGEST_STEP:  # binary fractions would decide about steps such as 0.1
        raise keyword.schema.refused(
            "multipleOf", f"is only supported up to {LARGEST_STEP}, with fractions exact in binary, such as 0.5 or 0.25"
        )
    return dfa.multiples(scaled, places), NUMBERS


def _length(keyword: Keyword) -> tuple[Dfa, Dfa]:
    limit, letters = keyword.value, keyword.schemas.letters
    decided = dfa.regex(f"{letters}*")
    if keyword.name == "minLength":
        return dfa.regex(f"{letters}{{{limit},}}"), decided
    most = min(limit, max(keyword.schemas.longest, keyword.schema.fields.get("minLength", 0)))
    shorter = dfa.regex(f"{letters}{{0,{most}}}")
    return shorter, decided if most == limit else shorter


def _format(keyword: Keyword) -> tuple[Dfa, Dfa]:
    form = FORMATS.get(keyword.value)
    return (dfa.regex(form), dfa.EMPTY) if form else (STRINGS, STRINGS)


def _pattern(keyword: Keyword) -> Values:
    found = keyword.schemas.pattern(keyword.schema, "pattern", keyword.value, holds=keyword.holds)
    return Values.of({**FREE.texts, "string": found}, FREE.shapes) if keyword.holds else Values.of({"string": found})


def _type(keyword: Keyword) -> Values:
    names, holds = keyword.value, keyword.holds
    names = {names} if isinstance(names, str) else {*names}
    texts = {kind: text for kind, text in FREE.texts.items() if (kind in names) == holds}
    if "integer" in names and "number" not in names:
        texts["number"] = dfa.INTEGERS if holds else dfa.difference(NUMBERS, dfa.multiples(1))
    return Values.of(texts, [shape for shape in FREE.shapes if (shape.kind in names) == holds])


def _among(keyword: Keyword) -> Values:
    values = [keyword.value] if keyword.name == "const" else keyword.value
    texts: dict[str, list[str]] = {}
    parts: list[Part] = []
    for value in values:
        if isinstance(value, list | dict):
            schema = replace(keyword.schema, draft=keyword.schemas.newest)
            parts.append((keyword.schemas.add(_exact(cast("Any", value)), schema, "enum"), keyword.holds))
        else:
            kind = {type(None): "null", bool: "boolean", str: "string"}.get(type(value), "number")
            texts.setdefault(kind, []).append(value if isinstance(value, str) else json.dumps(value))
    if keyword.holds:
        scalars = Values({kind: dfa.words(some) for kind, some in texts.items()})
        return _either([scalars, *[keyword.schemas.of((part,)) for part in parts]])
    others = dict(FREE.texts)
    for kind, some in texts.items():
        if kind == "number":  # of any spelling
            others[kind] = reduce(dfa.difference, [dfa.compared(Decimal(text))[1] for text in some], NUMBERS)
        else:
            others[kind] = dfa.difference(others[kind], dfa.words(some))
    return Values.of(others, keyword.schemas.of(tuple(parts)).shapes)


def _exact(value: Any) -> Fields:
    """Return a schema to which only this array or object conforms."""
    if isinstance(value, list):
        return {"type": "array", "prefixItems": [{"const": item} for item in value], "items": False, "minItems": len(value)}
    parts = {name: {"const": part} for name, part in value.items()}
    return {"type": "object", "properties": parts, "required": [*parts], "additionalProperties": False}


def _members(keyword: Keyword) -> Values:
    schemas, schema = keyword.schemas, keyword.schema
    if keyword.holds or keyword.name == "patternProperties":
        return keyword.fact("object", Fact("members", schema))
    patterns = [
        schemas.pattern(schema, "patternProperties", text, holds=False) for text in schema.fields.get("patternProperties", ())
    ]
    names = reduce(dfa.intersection, patterns, dfa.difference(STRINGS, dfa.words(schema.fields.get("properties", ()))))
    return keyword.broken("has", "object", (names, keyword.part(holds=False)[0]))


def _elements(keyword: Keyword) -> Values:
    if keyword.holds:
        return keyword.fact("array", Fact("elements", keyword.schema))
    first, rest = keyword.schemas.elements(keyword.schema)
    places = [(place, place, schema) for place, schema in enumerate(first)]
    return keyword.broken("contains", "array", *places, *[(len(first), None, schema) for schema in (rest,) if schema])


def _count(keyword: Keyword) -> Values:
    limits = (keyword.value, None) if keyword.name.startswith("min") else (0, keyword.value)
    return keyword.fact("array" if keyword.name.endswith("Items") else "object", Fact("count", limits))


def _properties(keyword: Keyword) -> Values:
    if keyword.holds:
        return _members(keyword)
    others = [
        {"type": "object", "required": [name], "properties": {name: {"not": part}}} for name, part in keyword.value.items()
    ]
    return keyword.schemas.any_of((keyword.made(each),) for each in others)


def _required(keyword: Keyword) -> Values:
    names: list[str] = keyword.value
    if keyword.holds:
        return keyword.fact("object", *[Fact("required", name) for name in names])
    without = [{"type": "object", "properties": {name: NEVER}} for name in names]
    return keyword.schemas.any_of((keyword.made(each),) for each in without)


def _names(keyword: Keyword) -> Values:
    found = keyword.schemas.of((keyword.part(holds=True),)) if keyword.holds else NONE
    return keyword.fact("object", Fact("names", found.texts.get("string", dfa.EMPTY)))


def _dependent(keyword: Keyword) -> Values:
    parts: list[Part] = []
    for name, part in keyword.value.items() if keyword.holds else ():
        then = {"required": part} if isinstance(part, list) else part
        parts.append(keyword.made({"anyOf": [{"properties": {name: NEVER}}, then]}))
    return keyword.schemas.of(tuple(parts)) if keyword.holds else NONE


def _unique(keyword: Keyword) -> Values:
    fields = keyword.schema.fields
    if not keyword.value or fields.get("maxItems", 2) < 2:
        return FREE if keyword.holds else NONE
    values = fields["items"].get("enum") if isinstance(fields.get("items"), dict) else None
    values = values and [*{json.dumps(value, sort_keys=True): value for value in values}.values()]
    if values is None or len(values) > MOST_UNIQUE:
        raise keyword.schema.refused("uniqueItems", f"is only supported for items with an enum of at most {MOST_UNIQUE} values")
    arrays = [[*some] for count in range(len(values) + 1) for some in permutations(values, count)]
    others = {"not": {"type": "array"}}
    return keyword.schemas.of((keyword.made({"anyOf": [{"enum": arrays}, others]}),)) if keyword.holds else NONE


def _contains(keyword: Keyword) -> Values:
    schema = keyword.schema
    newer = "dependencies" not in schema.draft.VALIDATORS
    least = schema.fields.get("minContains", 1) if newer else 1
    if least > 1:
        raise schema.refused("minContains", "is only supported up to 1")
    if newer and "maxContains" in schema.fields:
        raise schema.refused("maxContains")
    return keyword.fact("array", *[Fact("contains", (0, None, (keyword.part(holds=True),)))] * least)


def _combined(keyword: Keyword) -> Values:
    """Read allOf or anyOf. Negating one gives the other, applied to the negated schemas."""
    listed = dict.fromkeys(keyword.schemas.listed(keyword.schema, keyword.name))
    parts = [(part, keyword.holds) for part in listed]
    all_hold = (keyword.name == "allOf") == keyword.holds
    return keyword.schemas.of(tuple(parts)) if all_hold else keyword.schemas.any_of((part,) for part in parts)


def _one_of(keyword: Keyword) -> Values:
    parts = keyword.schemas.listed(keyword.schema, "oneOf") if keyword.holds else []
    single = [part for part in parts if parts.count(part) == 1]  # of equal schemas, both hold or neither
    return keyword.schemas.any_of(tuple((other, other is part) for other in dict.fromkeys((part, *parts))) for part in single)


def _conditional(keyword: Keyword) -> Values:
    schemas, schema, cases = keyword.schemas, keyword.schema, list[Conjunction]()
    for name, positive in (("then", True), ("else", False)):
        if name in schema.fields:
            cases.append((keyword.part(holds=positive), (schemas.inner(schema, name), keyword.holds)))
        elif keyword.holds:
            cases.append((keyword.part(holds=positive),))
    return schemas.any_of(cases)


_READ: dict[str, Reading] = {
    "$ref": lambda keyword: keyword.schemas.of(((keyword.schemas.target(keyword.schema), keyword.holds),)),
    "type": _type,
    "enum": _among,
    "const": _among,
    **dict.fromkeys(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"], _scalar("number", _limit)),
    "multipleOf": _scalar("number", _multiples),
    **dict.fromkeys(["minLength", "maxLength"], _scalar("string", _length)),
    "pattern": _pattern,
    "format": _scalar("string", _format),
    "properties": _properties,
    **dict.fromkeys(["patternProperties", "additionalProperties"], _members),
    "required": _required,
    "propertyNames": _names,
    **dict.fromkeys(["dependencies", "dependentRequired", "dependentSchemas"], _dependent),
    **dict.fromkeys(["prefixItems", "items", "additionalItems"], _elements),
    **dict.fromkeys(["minProperties", "maxProperties", "minItems", "maxItems"], _count),
    "uniqueItems": _unique,
    "contains": _contains,
    **dict.fromkeys(["allOf", "anyOf"], _combined),
    "oneOf": _one_of,
    "not": lambda keyword: keyword.schemas.of((keyword.part(holds=not keyword.holds),)),
    "if": _conditional,
}
DAY = (
    r"(?:[1-9][0-9]{3}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
    r"|(?:[1-9][0-9](?:0[48]|[2468][048]|[13579][26])|(?:[2468][048]|[13579][26])00)-02-29)"  # leap years
)
CLOCK = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]"
TIME = rf"{CLOCK}:[0-5][0-9](?:\.[0-9]{{1,9}})?(?:Z|[+-]{CLOCK})"
OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,20}[A-Za-z0-9])?\.){0,4}[A-Za-z](?:[A-Za-z0-9-]{0,20}[A-Za-z0-9])?"
NAME = r"(?:[A-Za-z0-9]+[.-])*[A-Za-z][A-Za-z0-9]*"  # of a host, without limits, which would need many states
LOCAL = r"[A-Za-z0-9_+-]{1,20}"
URL_CHARACTER = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})"
FORMATS = {
    "date": DAY,
    "date-time": f"{DAY}T{TIME}",
    "time": TIME,
    "uuid": "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
    "email": rf"{LOCAL}(?:\.{LOCAL}){{0,2}}@{HOST}",
    "hostname": HOST,
    "ipv4": rf"{OCTET}(?:\.{OCTET}){{3}}",
    "uri": rf"[A-Za-z][A-Za-z0-9+.-]*:(?://{NAME}(?::[0-9]{{1,5}})?(?:/{URL_CHARACTER}*)?|[A-Za-z0-9._~-]{URL_CHARACTER}*)"
    rf"(?:\?{URL_CHARACTER}*)?(?:#{URL_CHARACTER}*)?",
}
