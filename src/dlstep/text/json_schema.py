"""Read JSON schemas: which values conform, as texts of scalars and shapes of arrays and objects.

A value conforms to a `Conjunction` if it conforms to each of its parts: a schema, or the negation of
one. Where not all values can be described, as in negations, `Values` has fewer values, never more.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import reduce
from itertools import permutations
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ..core.checks import short
from . import dfa
from .dfa import NUMBERS, STRINGS, Dfa, TooManyStates

if TYPE_CHECKING:
    from referencing._core import Resolver

Fields = Mapping[str, Any]
MOST_SHAPES = 5_000  # of one conjunction
MOST_UNIQUE = 5  # values that the items of an array with unique items may have
LARGEST_STEP = 2_000
LONGEST_MESSAGE = 200
DRAFTS = {"draft-03": 4, "draft-04": 4, "draft-06": 6, "draft-07": 7, "2019-09": 201909, "2020-12": 202012}


@dataclass(frozen=True, eq=False, slots=True)
class Schema:
    """A schema of the document, which is compared by identity."""

    fields: Fields
    path: str
    resolver: "Resolver[Any]"
    draft: int

    def refused(self, keyword: str, why: str = "is not supported: leave it out") -> ValueError:
        """Return the error for a keyword."""
        return ValueError(f"{self.path}.{keyword} {why}")


Part = tuple[Schema, bool]  # whether a value must conform to it
Conjunction = tuple[Part, ...]
ANYTHING: Conjunction = ()


class Fact(NamedTuple):
    """What must hold for an array or object."""

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


BOOLEANS = dfa.words(["true", "false"])
FREE_NUMBERS = dfa.regex(r"-?(0|[1-9][0-9]{0,14})(\.[0-9]{1,6})?([eE][+-]?[0-9]{1,2})?")
SCALARS = {"null": dfa.words(["null"]), "boolean": BOOLEANS, "number": FREE_NUMBERS, "string": STRINGS}
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

    def __init__(self, root: Any, longest: int = 512, letters: str = dfa.LETTERS) -> None:
        from referencing import Registry

        self.longest, self.letters = longest, letters
        self._known: dict[int, Schema] = {}  # by the identity of the fields
        self._parts: dict[Part, Values] = {}
        self._values: dict[Conjunction, Values] = {}
        self._open: set[Part] = set()
        root = json.loads(json.dumps(root, allow_nan=False), parse_float=_number)  # without parts that are one object
        resolver = Registry[Any]().resolver_with_root(_resource(root, _draft(root, 202012)))
        self.root = self.add(root, Schema({}, "json_schema", resolver, 202012))

    def add(self, value: Any, outer: Schema, *names: object) -> Schema:
        """Return the schema inside another one to which `names` lead."""
        if isinstance(value, bool):
            value = _ALWAYS if value else _NEVER
        path, draft = ".".join([outer.path, *map(str, names)]), _draft(value, outer.draft)
        if id(value) not in self._known:
            if not names or "$schema" in value:
                _check(value, path, draft)
            resolver = outer.resolver.in_subresource(_resource(value, draft))
            self._known[id(value)] = Schema(value, path, resolver, draft)
        return self._known[id(value)]

    def inner(self, schema: Schema, *names: Any) -> Schema:
        """Return the schema to which `names` lead inside another one."""
        return self.add(reduce(lambda value, name: value[name], names, schema.fields), schema, *names)

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
                read = [_READ[keyword](self, schema, holds) for keyword in _keywords(schema)]
            finally:
                self._open.discard(part)
            self._parts[part] = reduce(self._both, read, FREE) if holds else _either(read)
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
                raise TooManyStates(f"json_schema combines more than {MOST_SHAPES} alternatives: make it smaller")
        return Values({kind: text for kind, text in texts.items() if text.rows}, tuple(shapes))

    def _contradicts(self, shape: Shape) -> bool:
        """Return whether the shape requires a property that it forbids."""
        required = {*shape.values("required")}
        members = [schema.fields.get("properties", {}) for schema in shape.values("members")]
        return any(fields.get(name) in (False, _NEVER) for fields in members for name in required & fields.keys())

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
                known = self.pattern(schema, "patternProperties", text)
                if not known.agreed.accepts(name):
                    raise schema.refused(f"patternProperties={short(text)}", f"is not supported beside the name {short(name)}")
                if known.matched.accepts(name):
                    found.append(("patternProperties", text))
            if not found and "additionalProperties" in fields:
                found = [("additionalProperties",)]
            parts += [self.inner(schema, *names) for names in found]
        return tuple(dict.fromkeys((part, True) for part in parts))

    def elements(self, schema: Schema) -> tuple[list[Schema], Schema | None]:
        """Return the schemas of the first items of arrays, and that of all others."""
        fields, first = schema.fields, "prefixItems" if schema.draft >= 202012 else "items"
        listed = isinstance(fields.get(first), list)
        rest = "additionalItems" if listed and first == "items" else "items"
        return self.listed(schema, first) if listed else [], self.inner(schema, rest) if rest in fields else None

    def pattern(self, schema: Schema, keyword: str, text: str) -> dfa.Pattern:
        """Return the automaton of a regex."""
        try:
            return dfa.pattern(text)
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
        path = "json_schema" + reference[1:].replace("/", ".") if reference[:1] == "#" else reference
        return self.add(found.contents, Schema({}, path, found.resolver, schema.draft))


_ALWAYS: Fields = {}
_NEVER: Fields = {"type": []}


def _number(text: str) -> float:
    """Return a number of the document; a whole number as an integer, the form in which it is compared and written."""
    value = float(text)
    return int(value) if value.is_integer() and abs(value) < 1e15 else value


def _draft(fields: Any, outer: int) -> int:
    """Return the draft by which a schema is read."""
    said = str(fields.get("$schema")) if isinstance(fields, dict) else ""
    return next((number for name, number in DRAFTS.items() if name in said), outer)


def _resource(fields: Any, draft: int) -> Any:
    from referencing import jsonschema

    return getattr(jsonschema, f"DRAFT{draft}").create_resource(fields)


def _check(fields: Any, path: str, draft: int) -> None:
    """Raise ValueError if a schema does not have the form of its draft. Schemas inside it may state other drafts."""
    import jsonschema
    from jsonschema.exceptions import best_match

    kind = getattr(jsonschema, f"Draft{draft}Validator")
    inside = {name: _of_one_draft(part) for name, part in fields.items()} if isinstance(fields, dict) else fields
    if (error := best_match(kind(kind.META_SCHEMA).iter_errors(inside))) is not None:
        place = ".".join(map(str, [path, *error.absolute_path]))
        raise ValueError(f"{place} is malformed: {error.message[:LONGEST_MESSAGE]}")


def _of_one_draft(value: Any) -> Any:
    """Return a part of a schema without the schemas that state their draft."""
    if isinstance(value, list):
        return [_of_one_draft(part) for part in value]
    if not isinstance(value, dict) or isinstance(value.get("$schema"), str):
        return {} if isinstance(value, dict) else value
    return {name: _of_one_draft(part) for name, part in value.items()}


def _keywords(schema: Schema) -> list[str]:
    """Return the keywords of a schema that have an effect. Raises ValueError if one is unsupported."""
    fields, draft = schema.fields, schema.draft
    if "$ref" in fields and draft < 201909:
        return ["$ref"]
    for keyword, value in fields.items():
        if keyword in UNSUPPORTED and draft >= 201909 and value is not True:
            raise schema.refused(keyword)
    return [keyword for keyword in _READ if keyword in fields and SINCE.get(keyword, 0) <= draft]


def _met(one: Dfa, other: Dfa) -> Dfa:
    if one is FREE_NUMBERS or other is FREE_NUMBERS:
        return other if one is FREE_NUMBERS else one
    return dfa.intersection(one, other)


def _either(values: Sequence[Values]) -> Values:
    """Return the values that are in any."""
    texts: dict[str, Dfa] = {}
    for one in values:
        texts |= {kind: dfa.union(texts.get(kind, dfa.EMPTY), text) for kind, text in one.texts.items()}
    return Values(texts, tuple(dict.fromkeys(shape for one in values for shape in one.shapes)))


# Keywords: the values for which one holds, or does not hold.
Reading = Callable[[Schemas, Schema, bool], Values]


def _scalar(kind: str, languages: Callable[[Schemas, Schema], tuple[Dfa, Dfa]]) -> Reading:
    """Return the reading of a keyword; `languages` are the texts for which it holds, and all texts that it decides."""

    def read(schemas: Schemas, schema: Schema, holds: bool) -> Values:
        matched, decided = languages(schemas, schema)
        texts = {**FREE.texts, kind: matched} if holds else {kind: dfa.difference(decided, matched)}
        return Values({kind: text for kind, text in texts.items() if text.rows}, FREE.shapes if holds else ())

    return read


def _limit(keyword: str, sign: int) -> Reading:
    """Return the reading of a limit of numbers; `sign` 1 is a minimum."""

    def languages(schemas: Schemas, schema: Schema) -> tuple[Dfa, Dfa]:
        limit = schema.fields[keyword]
        if isinstance(limit, bool):  # in draft 4: whether `minimum` or `maximum` is excluded
            return NUMBERS, NUMBERS
        strict = keyword.startswith("exclusive") or schema.fields.get(f"exclusive{keyword.title()}") is True
        less, equal, greater = dfa.compared(Decimal(repr(limit)))
        beyond = greater if sign > 0 else less
        return beyond if strict else dfa.union(beyond, equal), NUMBERS

    return _scalar("number", languages)


def _multiples(schemas: Schemas, schema: Schema) -> tuple[Dfa, Dfa]:
    step = schema.fields["multipleOf"]
    if not isinstance(step, int) or step > LARGEST_STEP:  # binary fractions would decide about others
        raise schema.refused("multipleOf", f"is only supported for whole numbers up to {LARGEST_STEP}")
    return dfa.multiples(step), NUMBERS


def _length(least: bool) -> Callable[[Schemas, Schema], tuple[Dfa, Dfa]]:
    def languages(schemas: Schemas, schema: Schema) -> tuple[Dfa, Dfa]:
        limit, letters = schema.fields["minLength" if least else "maxLength"], schemas.letters
        if least or limit <= schemas.longest:
            limits = f"{limit}," if least else f"0,{limit}"
            return dfa.regex(f"{letters}{{{limits}}}"), dfa.regex(f"{letters}*")
        shorter = dfa.regex(f"{letters}{{0,{max(schemas.longest, schema.fields.get('minLength', 0))}}}")
        return shorter, shorter  # it decides nothing about the others

    return languages


def _format(schemas: Schemas, schema: Schema) -> tuple[Dfa, Dfa]:
    name = schema.fields["format"]
    return (dfa.regex(FORMATS[name]), dfa.EMPTY) if name in FORMATS else (STRINGS, STRINGS)


def _type(schemas: Schemas, schema: Schema, holds: bool) -> Values:
    given = schema.fields["type"]
    names = {given} if isinstance(given, str) else {*given}
    texts = {kind: text for kind, text in FREE.texts.items() if (kind in names) == holds}
    if "integer" in names and "number" not in names:
        texts["number"] = dfa.INTEGERS if holds else dfa.difference(NUMBERS, dfa.multiples(1))
    return Values(texts, tuple(shape for shape in FREE.shapes if (shape.kind in names) == holds))


def _among(schemas: Schemas, schema: Schema, values: Iterable[Any], holds: bool) -> Values:
    """Return the values of a list; without `holds`, all others."""
    texts: dict[str, list[str]] = {}
    parts: list[Part] = []
    for value in values:
        if isinstance(value, list | dict):
            exact = _array_of(cast("list[Any]", value)) if isinstance(value, list) else _object_of(cast("Fields", value))
            parts.append((schemas.add(exact, replace(schema, draft=202012), "enum"), holds))
        else:
            kind = {type(None): "null", bool: "boolean", str: "string"}.get(type(value), "number")
            texts.setdefault(kind, []).append(value if isinstance(value, str) else json.dumps(value))
    if holds:
        found = _either([Values({kind: dfa.words(some)}) for kind, some in texts.items()])
        return _either([found, *[schemas.of((part,)) for part in parts]])
    others = dict(FREE.texts)
    for kind, some in texts.items():
        if kind == "number":  # of any spelling
            others[kind] = reduce(dfa.difference, [dfa.compared(Decimal(text))[1] for text in some], NUMBERS)
        else:
            others[kind] = dfa.difference(others[kind], dfa.words(some))
    others = {kind: text for kind, text in others.items() if text.rows}
    return Values(others, schemas.of(tuple(parts)).shapes)


def _array_of(items: Iterable[Any]) -> Fields:
    """Return the schema of an array."""
    prefix = [{"const": item} for item in items]
    return {"type": "array", "prefixItems": prefix, "items": False, "minItems": len(prefix)}


def _object_of(members: Fields) -> Fields:
    """Return the schema of an object."""
    parts = {name: {"const": part} for name, part in members.items()}
    return {"type": "object", "properties": parts, "required": [*parts], "additionalProperties": False}


def _fact(kind: str, *facts: Fact) -> Values:
    """Return the values for which facts hold, if they have this type."""
    return Values(FREE.texts, tuple(Shape(each.kind, facts if each.kind == kind else ()) for each in FREE.shapes))


def _tells(kind: str, name: str) -> Reading:
    """Return the reading of keywords that together are one fact, whose value is their schema; it has no negation."""
    return lambda schemas, schema, holds: _fact(kind, Fact(name, schema)) if holds else NONE


def _count(keyword: str, kind: str) -> Reading:
    """Return the reading of a limit of a number of items or properties; it has no negation."""

    def read(schemas: Schemas, schema: Schema, holds: bool) -> Values:
        limit = schema.fields[keyword]
        return _fact(kind, Fact("count", (limit, None) if keyword.startswith("min") else (0, limit))) if holds else NONE

    return read


def _properties(schemas: Schemas, schema: Schema, holds: bool) -> Values:
    if holds:
        return _fact("object", Fact("members", schema))
    parts = list[Conjunction]()
    for name, part in schema.fields["properties"].items():
        other = {"type": "object", "required": [name], "properties": {name: {"not": part}}}
        parts.append(((schemas.add(other, schema, "properties"), True),))
    return schemas.any_of(parts)


def _required(schemas: Schemas, schema: Schema, holds: bool) -> Values:
    names: list[str] = schema.fields["required"]
    if holds:
        return _fact("object", *[Fact("required", name) for name in names])
    without = [{"type": "object", "properties": {name: _NEVER}} for name in names]
    return schemas.any_of(((schemas.add(each, schema, "required"), True),) for each in without)


def _names(schemas: Schemas, schema: Schema, holds: bool) -> Values:
    found = schemas.of(((schemas.inner(schema, "propertyNames"), True),)) if holds else NONE
    return _fact("object", Fact("names", found.texts.get("string", dfa.EMPTY))) if holds else NONE


def _dependent(keyword: str) -> Reading:
    """Return the reading of what a property requires; it has no negation."""

    def read(schemas: Schemas, schema: Schema, holds: bool) -> Values:
        parts: list[Part] = []
        for name, part in schema.fields[keyword].items() if holds else ():
            then = {"required": part} if isinstance(part, list) else part
            either = {"anyOf": [{"properties": {name: _NEVER}}, then]}
            parts.append((schemas.add(either, schema, keyword, name), True))
        return schemas.of(tuple(parts)) if holds else NONE

    return read


def _unique(schemas: Schemas, schema: Schema, holds: bool) -> Values:
    fields = schema.fields
    if not fields["uniqueItems"] or fields.get("maxItems", 2) < 2:
        return FREE if holds else NONE
    values = fields["items"].get("enum") if isinstance(fields.get("items"), dict) else None
    if values is None or len(values) > MOST_UNIQUE:
        raise schema.refused("uniqueItems", f"is only supported for items with an enum of at most {MOST_UNIQUE} values")
    arrays = [[*some] for count in range(len(values) + 1) for some in permutations(values, count)]
    return Values(FREE.texts, (*_among(schemas, schema, arrays, True).shapes, FREE.shapes[1])) if holds else NONE


def _contains(schemas: Schemas, schema: Schema, holds: bool) -> Values:
    least = schema.fields.get("minContains", 1) if schema.draft >= 201909 else 1
    if least > 1:
        raise schema.refused("minContains", "is only supported up to 1")
    return _fact("array", *[Fact("contains", schema)] * least) if holds else NONE


def _combined(keyword: str) -> Reading:
    """Return the reading of allOf or anyOf; the negation of one is the other, applied to the negated schemas."""

    def read(schemas: Schemas, schema: Schema, holds: bool) -> Values:
        parts = [(part, holds) for part in dict.fromkeys(schemas.listed(schema, keyword))]
        return schemas.of(tuple(parts)) if (keyword == "allOf") == holds else schemas.any_of((part,) for part in parts)

    return read


def _one_of(schemas: Schemas, schema: Schema, holds: bool) -> Values:
    parts = schemas.listed(schema, "oneOf") if holds else []
    single = [part for part in parts if parts.count(part) == 1]  # of equal schemas, both hold or neither
    return schemas.any_of(tuple((other, other is part) for other in dict.fromkeys((part, *parts))) for part in single)


def _conditional(schemas: Schemas, schema: Schema, holds: bool) -> Values:
    given, cases = schemas.inner(schema, "if"), list[Conjunction]()
    for keyword, positive in (("then", True), ("else", False)):
        if keyword in schema.fields:
            cases.append(((given, positive), (schemas.inner(schema, keyword), holds)))
        elif holds:
            cases.append(((given, positive),))
    return schemas.any_of(cases)


_READ: dict[str, Reading] = {
    "$ref": lambda schemas, schema, holds: schemas.of(((schemas.target(schema), holds),)),
    "type": _type,
    "enum": lambda schemas, schema, holds: _among(schemas, schema, schema.fields["enum"], holds),
    "const": lambda schemas, schema, holds: _among(schemas, schema, [schema.fields["const"]], holds),
    "minimum": _limit("minimum", 1),
    "maximum": _limit("maximum", -1),
    "exclusiveMinimum": _limit("exclusiveMinimum", 1),
    "exclusiveMaximum": _limit("exclusiveMaximum", -1),
    "multipleOf": _scalar("number", _multiples),
    "minLength": _scalar("string", _length(True)),
    "maxLength": _scalar("string", _length(False)),
    "pattern": _scalar("string", lambda schemas, schema: schemas.pattern(schema, "pattern", schema.fields["pattern"])),
    "format": _scalar("string", _format),
    "properties": _properties,
    "patternProperties": _tells("object", "members"),
    "additionalProperties": _tells("object", "members"),
    "required": _required,
    "propertyNames": _names,
    "minProperties": _count("minProperties", "object"),
    "maxProperties": _count("maxProperties", "object"),
    "dependencies": _dependent("dependencies"),
    "dependentRequired": _dependent("dependentRequired"),
    "dependentSchemas": _dependent("dependentSchemas"),
    "prefixItems": _tells("array", "elements"),
    "items": _tells("array", "elements"),
    "minItems": _count("minItems", "array"),
    "maxItems": _count("maxItems", "array"),
    "uniqueItems": _unique,
    "contains": _contains,
    "allOf": _combined("allOf"),
    "anyOf": _combined("anyOf"),
    "oneOf": _one_of,
    "not": lambda schemas, schema, holds: schemas.of(((schemas.inner(schema, "not"), not holds),)),
    "if": _conditional,
}
# The drafts that introduced keywords: others ignore them.
SINCE = {
    **dict.fromkeys(["const", "contains", "propertyNames"], 6),
    "if": 7,
    **dict.fromkeys(["dependentRequired", "dependentSchemas"], 201909),
    "prefixItems": 202012,
}
UNSUPPORTED = frozenset(["$dynamicRef", "$recursiveRef", "unevaluatedProperties", "unevaluatedItems", "maxContains"])
DAY = (
    r"(?:[1-9][0-9]{3}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
    r"|(?:[1-9][0-9](?:0[48]|[2468][048]|[13579][26])|(?:[2468][048]|[13579][26])00)-02-29)"  # leap years
)
CLOCK = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]"
TIME = rf"{CLOCK}:[0-5][0-9](?:\.[0-9]{{1,9}})?(?:Z|[+-]{CLOCK})"
OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,20}[A-Za-z0-9])?\.){0,4}[A-Za-z](?:[A-Za-z0-9-]{0,20}[A-Za-z0-9])?"
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
    "uri": rf"[A-Za-z][A-Za-z0-9+.-]{{0,20}}:(?://{HOST}(?::[0-9]{{1,5}})?(?:/{URL_CHARACTER}*)?|[A-Za-z0-9._~-]{URL_CHARACTER}*)"
    rf"(?:\?{URL_CHARACTER}*)?(?:#{URL_CHARACTER}*)?",
}
