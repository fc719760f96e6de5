"""Read JSON schemas: which values conform, as texts of scalars and shapes of arrays and objects.

A value conforms to a `Conjunction` if it conforms to each of its parts: a schema, or the negation of
one. Where not all values can be described, as in negations, `Values` has fewer, never more.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import reduce
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ..core.checks import short
from . import dfa
from .dfa import NUMBERS, STRINGS, Dfa, TooManyStates

if TYPE_CHECKING:
    from referencing._core import Resolver

Fields = Mapping[str, Any]
Part = tuple[int, bool]  # the number of a schema, and whether a value must conform to it
Conjunction = tuple[Part, ...]
ANYTHING: Conjunction = ()
MOST_SHAPES = 5_000  # of one conjunction
DEEPEST = 60  # levels of brackets
LARGEST_STEP = 64  # a multiple of 1 / 64 is exact in binary
DRAFTS = {"draft-03": 4, "draft-04": 4, "draft-06": 6, "draft-07": 7, "2019-09": 2019, "2020-12": 2020}


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


class Schema(NamedTuple):
    """A schema of the document."""

    fields: Fields
    path: str
    resolver: "Resolver[Any]"
    draft: int


class CircularError(ValueError):
    """Error for a schema whose meaning depends on itself."""


def json_text(value: Any) -> str:
    """Return a value as JSON, in ASCII if UTF-8 cannot encode it."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return text if text.encode(errors="ignore").decode() == text else json.dumps(value)


class Schemas:
    """The schemas of a document. Raises ValueError, with the path of the cause, for what is not supported.

    Args:
        root: The document.
        longest: Maximum length of strings that have a maximum.
        letters: Characters of strings that have a limit of their length.
    """

    def __init__(self, root: Any, longest: int = 512, letters: dfa.Ranges = dfa.LETTERS) -> None:
        from referencing import Registry

        self.longest, self.letters = longest, letters
        self.known: list[Schema] = []
        self._number: dict[int, int] = {}  # by the identity of the fields
        self._parts: dict[Part, Values] = {}
        self._values: dict[Conjunction, Values] = {}
        self._open: set[Part] = set()
        _check_depth(root)
        root = json.loads(json.dumps(root))  # schemas are known by identity, so no two parts may be one object
        resource = _specification(_draft(root, 2020)).create_resource(root)
        resolver = Registry[Any]().resolver_with_root(resource)
        self.root = self.add(root, Schema({}, "json_schema", resolver, 2020))

    def add(self, value: Any, outer: Schema, *names: object) -> int:
        """Return the number of a schema inside another one, where `names` lead to it."""
        path = ".".join([outer.path, *map(str, names)])
        if isinstance(value, bool):
            value = _ALWAYS if value else _NEVER
        if not isinstance(value, dict):
            raise ValueError(f"{path} must be a JSON schema, got {short(value)}")
        fields = cast("Fields", value)
        if id(fields) not in self._number:
            self._number[id(fields)] = len(self.known)
            draft, resolver = _draft(fields, outer.draft), outer.resolver
            if _identified(fields):
                resolver = resolver.in_subresource(_specification(draft).create_resource(fields))
            self.known.append(Schema(fields, path, resolver, draft))
        return self._number[id(fields)]

    def inner(self, number: int, *names: Any) -> int:
        """Return the number of the schema to which `names` lead inside another one."""
        schema = self.known[number]
        return self.add(reduce(lambda value, name: value[name], names, schema.fields), schema, *names)

    def listed(self, number: int, keyword: str) -> list[int]:
        """Return the numbers of the schemas that a keyword lists."""
        return [self.inner(number, keyword, index) for index in range(len(self.value(number, keyword)))]

    def refused(self, number: int, keyword: str, why: str = "is not supported: leave it out") -> ValueError:
        """Return the error for a keyword."""
        return ValueError(f"{self.known[number].path}.{keyword} {why}")

    def value(self, number: int, keyword: str) -> Any:
        """Return the value of a keyword of a schema; None if it is missing."""
        return self.known[number].fields.get(keyword)

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
            number, holds = part
            if part in self._open:
                raise CircularError(f"{self.known[number].path}.$ref leads back to itself")
            self._open.add(part)
            try:
                read = [_READ[keyword](self, number, holds) for keyword in self._keywords(number)]
            finally:
                self._open.discard(part)
            self._parts[part] = reduce(self._both, read, FREE) if holds else _either(read)
        return self._parts[part]

    def _keywords(self, number: int) -> list[str]:
        """Return the keywords of a schema that mean something. Raises ValueError if one is unsupported or malformed."""
        fields, _, _, draft = self.known[number]
        if "$ref" in fields and draft < 2019:
            fields = {"$ref": fields["$ref"]}
        for keyword, value in fields.items():
            if keyword in UNSUPPORTED and draft >= 2019 and value is not True:
                raise self.refused(number, keyword)
            form = next((form for form, names in FORMS.items() if keyword in names), None)
            if form is not None and not FORM_CHECKS[form](value):
                raise self.refused(number, keyword, f"must be {form}, got {short(value)}")
        return [keyword for keyword in _READ if keyword in fields and SINCE.get(keyword, 0) <= draft]

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
        members = [self.value(number, "properties") or {} for number in shape.values("members")]
        return any(fields.get(name) in (False, _NEVER) for fields in members for name in required & fields.keys())

    def _implies(self, shape: Shape, other: Shape) -> bool:
        """Return whether surely all values of a shape have the other shape."""
        try:
            return all(fact in shape.facts or self._conforms(shape, fact) for fact in other.facts)
        except CircularError:
            return False

    def _conforms(self, shape: Shape, fact: Fact) -> bool:
        """Return whether surely the one property of which a fact tells conforms in all values of a shape."""
        fields = self.known[fact.value].fields if fact.name == "members" else {}
        if len(names := fields.get("properties", ())) != 1 or fields.keys() & {"patternProperties", "additionalProperties"}:
            return False
        (name,) = names
        found, allowed = self.of(self.member(shape, name)), self.of(((self.inner(fact.value, "properties", name), True),))
        return all(
            not dfa.difference(texts, allowed.texts.get(kind, dfa.EMPTY)).rows for kind, texts in found.texts.items()
        ) and all(any(self._implies(one, each) for each in allowed.shapes if each.kind == one.kind) for one in found.shapes)

    def member(self, shape: Shape, name: str) -> Conjunction:
        """Return what the value of a property must conform to."""
        parts: list[int] = []
        for number in shape.values("members"):
            fields = self.known[number].fields
            found: list[tuple[str, ...]] = [("properties", name)] if name in fields.get("properties", ()) else []
            for text in fields.get("patternProperties", ()):
                if self.pattern(number, "patternProperties", text).matched.accepts(name):
                    found.append(("patternProperties", text))
            if not found and "additionalProperties" in fields:
                found = [("additionalProperties",)]
            parts += [self.inner(number, *names) for names in found]
        return tuple(dict.fromkeys((part, True) for part in parts))

    def elements(self, number: int) -> tuple[list[int], int | None]:
        """Return the schemas of the first items of arrays, and that of all others."""
        fields = self.known[number].fields
        prefix = "items" if isinstance(fields.get("items"), list) else "prefixItems"
        rest = "additionalItems" if prefix == "items" else "items"
        first = self.listed(number, prefix) if prefix in self._keywords(number) else []
        return first, self.inner(number, rest) if rest in fields else None

    def pattern(self, number: int, keyword: str, text: str) -> dfa.Pattern:
        """Return the automaton of a regex."""
        try:
            return dfa.pattern(text)
        except ValueError as error:
            raise self.refused(number, f"{keyword}={short(text)}", f"is not supported: {error}") from error

    def target(self, number: int) -> int:
        """Return the number of the schema to which the reference of a schema leads."""
        from referencing.exceptions import Unresolvable

        schema = self.known[number]
        reference = schema.fields["$ref"]
        try:
            found = schema.resolver.lookup(reference)
        except (Unresolvable, AttributeError, TypeError) as error:
            raise self.refused(number, f"$ref={short(reference)}", "does not lead to a part of this document") from error
        path = "json_schema" + reference[1:].replace("/", ".") if reference[:1] == "#" else reference
        return self.add(found.contents, Schema({}, path, found.resolver, schema.draft))


_ALWAYS: Fields = {}
_NEVER: Fields = {"type": []}


def _check_depth(root: Any) -> None:
    level = [root]
    for _ in range(DEEPEST):
        inner = (part.values() if isinstance(part, dict) else part for part in level if isinstance(part, dict | list))
        level = [part for parts in inner for part in parts]
    if level:
        raise ValueError(f"json_schema has more than {DEEPEST} levels of brackets: nest less deeply")


def _draft(fields: Any, outer: int) -> int:
    """Return the draft by which a schema is read."""
    said = str(fields.get("$schema")) if isinstance(fields, dict) else ""
    return next((number for name, number in DRAFTS.items() if name in said), outer)


def _identified(fields: Fields) -> bool:
    return any(isinstance(fields.get(name), str) for name in ("$id", "id"))


def _specification(draft: int) -> Any:
    from referencing import jsonschema

    names = {4: "DRAFT4", 6: "DRAFT6", 7: "DRAFT7", 2019: "DRAFT201909", 2020: "DRAFT202012"}
    return getattr(jsonschema, names[draft])


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
Reading = Callable[[Schemas, int, bool], Values]


def _scalar(kind: str, languages: Callable[[Schemas, int], tuple[Dfa, Dfa]]) -> Reading:
    """Return the reading of a keyword with the texts for which it holds, among those about which it decides."""

    def read(schemas: Schemas, number: int, holds: bool) -> Values:
        matched, decided = languages(schemas, number)
        texts = {**FREE.texts, kind: matched} if holds else {kind: dfa.difference(decided, matched)}
        return Values({kind: text for kind, text in texts.items() if text.rows}, FREE.shapes if holds else ())

    return read


def _limit(keyword: str, sign: int) -> Reading:
    """Return the reading of a limit of numbers; `sign` 1 is a minimum."""

    def languages(schemas: Schemas, number: int) -> tuple[Dfa, Dfa]:
        limit = schemas.value(number, keyword)
        if isinstance(limit, bool):  # in draft 4: whether `minimum` or `maximum` is excluded
            return NUMBERS, NUMBERS
        strict = keyword.startswith("exclusive") or schemas.value(number, f"exclusive{keyword.title()}") is True
        return dfa.compared(Decimal(repr(limit)), frozenset([sign] if strict else [sign, 0])), NUMBERS

    return _scalar("number", languages)


def _multiples(schemas: Schemas, number: int) -> tuple[Dfa, Dfa]:
    step = schemas.value(number, "multipleOf")
    if not float(step * LARGEST_STEP).is_integer():  # binary fractions would decide otherwise
        raise schemas.refused(number, "multipleOf", f"is only supported for multiples of 1/{LARGEST_STEP}")
    try:
        return dfa.multiples(Decimal(repr(step))), NUMBERS
    except TooManyStates as error:
        raise schemas.refused(number, "multipleOf", f"is not supported: {error}") from error


def _length(least: bool) -> Callable[[Schemas, int], tuple[Dfa, Dfa]]:
    def languages(schemas: Schemas, number: int) -> tuple[Dfa, Dfa]:
        limit, letters = int(schemas.value(number, "minLength" if least else "maxLength")), schemas.letters
        if least or limit <= schemas.longest:
            return dfa.lengths(*((limit, None) if least else (0, limit)), letters), dfa.lengths(0, None, letters)
        shorter = dfa.lengths(0, max(schemas.longest, schemas.value(number, "minLength") or 0), letters)
        return shorter, shorter  # it decides nothing about the others

    return languages


def _pattern(schemas: Schemas, number: int) -> tuple[Dfa, Dfa]:
    return schemas.pattern(number, "pattern", schemas.value(number, "pattern"))


def _format(schemas: Schemas, number: int) -> tuple[Dfa, Dfa]:
    name = schemas.value(number, "format")
    return (dfa.regex(FORMATS[name]), dfa.EMPTY) if name in FORMATS else (STRINGS, STRINGS)


def _type(schemas: Schemas, number: int, holds: bool) -> Values:
    given = schemas.value(number, "type")
    names = {given} if isinstance(given, str) else {*given}
    if wrong := names - {*FREE.texts, "integer", "array", "object"}:
        raise schemas.refused(number, "type", f"must name types of JSON, got {short(min(wrong))}")
    texts = {kind: text for kind, text in FREE.texts.items() if (kind in names) == holds}
    if "integer" in names and "number" not in names:
        texts["number"] = dfa.INTEGERS if holds else dfa.difference(NUMBERS, dfa.multiples(Decimal(1)))
    return Values(texts, tuple(shape for shape in FREE.shapes if (shape.kind in names) == holds))


def _enum(schemas: Schemas, number: int, holds: bool) -> Values:
    fields, draft = schemas.known[number].fields, schemas.known[number].draft
    values: list[Any] = fields["enum"] if "enum" in fields else [fields["const"]]
    if "enum" in fields and "const" in fields and draft > 4:
        values = [value for value in values if json_text(value) == json_text(fields["const"])]
    texts: dict[str, list[str]] = {}
    parts: list[Part] = []
    for value in values:
        if isinstance(value, list | dict):
            exact = _array_of(cast("list[Any]", value)) if isinstance(value, list) else _object_of(cast("Fields", value))
            parts.append((schemas.add(exact, schemas.known[number]._replace(draft=2020), "enum"), holds))
        else:
            kind = {type(None): "null", bool: "boolean", str: "string"}.get(type(value), "number")
            texts.setdefault(kind, []).append(value if isinstance(value, str) else _scalar_text(value))
    if holds:
        found = _either([Values({kind: dfa.words(some)}) for kind, some in texts.items()])
        return _either([found, *[schemas.of((part,)) for part in parts]])
    others = dict(FREE.texts)
    for kind, some in texts.items():
        if kind == "number":  # of any spelling
            others[kind] = reduce(dfa.difference, [dfa.compared(Decimal(text), frozenset([0])) for text in some], NUMBERS)
        else:
            others[kind] = dfa.difference(others[kind], dfa.words(some))
    others = {kind: text for kind, text in others.items() if text.rows}
    return Values(others, schemas.of(tuple(parts)).shapes)


def _const(schemas: Schemas, number: int, holds: bool) -> Values:
    if "enum" in schemas.known[number].fields:  # which reads it
        return FREE if holds else NONE
    return _enum(schemas, number, holds)


def _scalar_text(value: Any) -> str:
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 1e15
    return str(int(value)) if whole else json_text(value)


def _array_of(items: list[Any]) -> Fields:
    """Return the schema of an array."""
    return {"type": "array", "prefixItems": [{"const": item} for item in items], "items": False, "minItems": len(items)}


def _object_of(members: Fields) -> Fields:
    """Return the schema of an object."""
    parts = {name: {"const": part} for name, part in members.items()}
    return {"type": "object", "properties": parts, "required": [*parts], "additionalProperties": False}


def _fact(kind: str, *facts: Fact) -> Values:
    """Return the values for which facts hold, if they have this type."""
    return Values(FREE.texts, tuple(Shape(each.kind, facts if each.kind == kind else ()) for each in FREE.shapes))


def _tells(kind: str, name: str) -> Reading:
    """Return the reading of keywords that together make one fact, the number of their schema; it has no negation."""
    return lambda schemas, number, holds: _fact(kind, Fact(name, number)) if holds else NONE


def _count(keyword: str, kind: str) -> Reading:
    """Return the reading of a limit of a number of items or properties."""

    def read(schemas: Schemas, number: int, holds: bool) -> Values:
        limit, least = int(schemas.value(number, keyword)), keyword.startswith("min")
        if holds:
            return _fact(kind, Fact("count", (limit, None) if least else (0, limit)))
        if least and not limit:
            return NONE
        return Values({}, (Shape(kind, (Fact("count", (0, limit - 1) if least else (limit + 1, None)),)),))

    return read


def _properties(schemas: Schemas, number: int, holds: bool) -> Values:
    if holds:
        return _fact("object", Fact("members", number))
    schema, parts = schemas.known[number], list[Conjunction]()
    for name in schema.fields["properties"]:
        inner = schemas.known[schemas.inner(number, "properties", name)]
        other = {"type": "object", "required": [name], "properties": {name: {"not": inner.fields}}}
        parts.append(((schemas.add(other, schema, "properties"), True),))
    return schemas.any_of(parts)


def _required(schemas: Schemas, number: int, holds: bool) -> Values:
    names: list[str] = schemas.value(number, "required")
    if holds:
        return _fact("object", *[Fact("required", name) for name in names])
    without = [{"type": "object", "properties": {name: _NEVER}} for name in names]
    return schemas.any_of(((schemas.add(each, schemas.known[number], "required"), True),) for each in without)


def _names(schemas: Schemas, number: int, holds: bool) -> Values:
    found = schemas.of(((schemas.inner(number, "propertyNames"), True),)) if holds else NONE
    return _fact("object", Fact("names", found.texts.get("string", dfa.EMPTY))) if holds else NONE


def _dependent(keyword: str) -> Reading:
    """Return the reading of what a property requires; it has no negation."""

    def read(schemas: Schemas, number: int, holds: bool) -> Values:
        schema, parts = schemas.known[number], list[Part]()
        for name, part in schema.fields[keyword].items() if holds else ():
            then = {"required": part} if isinstance(part, list) else schemas.known[schemas.inner(number, keyword, name)].fields
            parts.append((schemas.add({"anyOf": [{"properties": {name: _NEVER}}, then]}, schema, keyword, name), True))
        return schemas.of(tuple(parts)) if holds else NONE

    return read


def _unique(schemas: Schemas, number: int, holds: bool) -> Values:
    wanted = schemas.value(number, "uniqueItems")
    return _fact("array", *[Fact("unique", number)] * wanted) if holds else NONE


def _contains(schemas: Schemas, number: int, holds: bool) -> Values:
    fields = schemas.known[number].fields
    least = fields.get("minContains", 1) if schemas.known[number].draft >= 2019 else 1
    if least > 1:
        raise schemas.refused(number, "minContains", "is only supported up to 1")
    return _fact("array", *[Fact("contains", number)] * int(least)) if holds else NONE


def _combined(keyword: str) -> Reading:
    """Return the reading of allOf and anyOf: the negation of one is the other of negations."""

    def read(schemas: Schemas, number: int, holds: bool) -> Values:
        parts = [(part, holds) for part in dict.fromkeys(schemas.listed(number, keyword))]
        return schemas.of(tuple(parts)) if (keyword == "allOf") == holds else schemas.any_of((part,) for part in parts)

    return read


def _one_of(schemas: Schemas, number: int, holds: bool) -> Values:
    parts = schemas.listed(number, "oneOf")
    if not holds:
        pairs = [((one, True), (other, True)) for one, other in combinations(parts, 2)]
        return schemas.any_of([tuple((part, False) for part in parts), *pairs])
    single = [part for part in parts if parts.count(part) == 1]  # of equal schemas, both hold or neither
    return schemas.any_of(tuple((other, other == part) for other in dict.fromkeys((part, *parts))) for part in single)


def _conditional(schemas: Schemas, number: int, holds: bool) -> Values:
    given, cases = schemas.inner(number, "if"), list[Conjunction]()
    for keyword, positive in (("then", True), ("else", False)):
        if keyword in schemas.known[number].fields:
            cases.append(((given, positive), (schemas.inner(number, keyword), holds)))
        elif holds:
            cases.append(((given, positive),))
    return schemas.any_of(cases)


_READ: dict[str, Reading] = {
    "$ref": lambda schemas, number, holds: schemas.of(((schemas.target(number), holds),)),
    "type": _type,
    "enum": _enum,
    "const": _const,
    "minimum": _limit("minimum", 1),
    "maximum": _limit("maximum", -1),
    "exclusiveMinimum": _limit("exclusiveMinimum", 1),
    "exclusiveMaximum": _limit("exclusiveMaximum", -1),
    "multipleOf": _scalar("number", _multiples),
    "minLength": _scalar("string", _length(True)),
    "maxLength": _scalar("string", _length(False)),
    "pattern": _scalar("string", _pattern),
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
    "not": lambda schemas, number, holds: schemas.of(((schemas.inner(number, "not"), not holds),)),
    "if": _conditional,
}
# The drafts that introduced keywords: others ignore them.
SINCE = {
    **dict.fromkeys(["const", "contains", "propertyNames"], 6),
    "if": 7,
    **dict.fromkeys(["dependentRequired", "dependentSchemas"], 2019),
    "prefixItems": 2020,
}
UNSUPPORTED = frozenset(["$dynamicRef", "$recursiveRef", "unevaluatedProperties", "unevaluatedItems", "maxContains"])
FORMS = {
    "a whole number from 0": (
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "minProperties",
        "maxProperties",
        "minContains",
    ),
    "a number below 1e30": ("minimum", "maximum"),
    "a number below 1e30, or in draft 4 true or false": ("exclusiveMinimum", "exclusiveMaximum"),
    "a positive number": ("multipleOf",),
    "an object": ("properties", "patternProperties", "dependencies", "dependentRequired", "dependentSchemas"),
    "a list": ("allOf", "anyOf", "oneOf", "enum", "prefixItems"),
    "a list of names": ("required",),
    "a name or a list of names": ("type",),
    "a text": ("pattern", "format", "$ref"),
    "true or false": ("uniqueItems",),
}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e30


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in cast("list[Any]", value))


FORM_CHECKS: dict[str, Callable[[Any], bool]] = dict(
    zip(
        FORMS,
        (
            lambda value: _is_number(value) and value >= 0 and float(value).is_integer(),
            _is_number,
            lambda value: isinstance(value, bool) or _is_number(value),
            lambda value: _is_number(value) and value > 0,
            lambda value: isinstance(value, dict),
            lambda value: isinstance(value, list),
            _is_names,
            lambda value: isinstance(value, str) or _is_names(value),
            lambda value: isinstance(value, str),
            lambda value: isinstance(value, bool),
        ),
        strict=True,
    )
)

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
