"""Translate JSON schemas to regexes that match only texts that conform to the schema.

A regex may match fewer texts than conform: properties have the order of the schema, properties that
the schema does not name are left out, and recursion ends at a fixed depth. A schema that cannot be
translated soundly raises ValueError with the path of the cause.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from ..core.checks import short
from .json_regex import (
    CHARACTER,
    COMMA,
    FORMATS,
    LARGEST_EXCLUDED,
    SPACE,
    any_value,
    comma_separated,
    json_text,
    literal,
    number,
    translated,
    union,
)

Schema = Mapping[str, Any]

DEPTH = 2  # nested objects and arrays in a value of any type
RECURSION = 3  # how often a definition may contain itself
LONGEST = 1 << 20  # characters of a regex
MOST_PARTS = 5_000  # schemas within one schema; a definition counts each time it is used
DEEPEST = 60  # levels of brackets in a schema, and of schemas after $ref is followed
OLD_DRAFTS = ("draft-06", "draft-07", "2019-09")  # in these, `items` may be a list, which 2020-12 calls `prefixItems`
DESCRIBING = frozenset(
    [
        "title",
        "description",
        "default",
        "examples",
        "$schema",
        "$id",
        "$comment",
        "deprecated",
        "readOnly",
        "writeOnly",
        "strict",
    ]
)
DEFINITIONS = frozenset(["$defs", "definitions"])
SILENT = DESCRIBING | DEFINITIONS  # keywords that exclude no value
LARGER = frozenset(["minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"])
SMALLER = frozenset(["maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"])
# Keywords by what their value must be.
LISTS = frozenset(["anyOf", "oneOf", "allOf", "prefixItems", "enum"])
OBJECTS = frozenset(["properties", "patternProperties", "discriminator"])
TEXTS = frozenset(["pattern", "format", "$ref"])
# Pairs: the first keyword applies to what the second one does not name.
REST = (
    ("additionalProperties", "properties"),
    ("additionalProperties", "patternProperties"),
    ("patternProperties", "properties"),
    ("items", "prefixItems"),
)
# The keywords that apply to each type.
KEYWORDS: dict[str, frozenset[str]] = {
    "object": frozenset(
        [
            "properties",
            "required",
            "additionalProperties",
            "patternProperties",
            "propertyNames",
            "minProperties",
            "maxProperties",
        ]
    ),
    "array": frozenset(["items", "prefixItems", "additionalItems", "minItems", "maxItems"]),
    "string": frozenset(["minLength", "maxLength", "pattern", "format"]),
    "integer": frozenset(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]),
    "number": frozenset(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]),
    "boolean": frozenset(),
    "null": frozenset(),
}
OTHERS = frozenset(["type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref", "discriminator"])
DATA = frozenset(["enum", "const", "default", "examples"])  # their values are not schemas
KNOWN = frozenset.union(*KEYWORDS.values()) | OTHERS | SILENT


def schema_regex(schema: Any) -> str:
    """Return the regex of a schema. Raises ValueError, with the path of the cause, if the schema is not supported."""
    if not isinstance(schema, dict):
        raise ValueError(f"json_schema must be a JSON schema, got {short(schema)}")
    level: list[Any] = [schema]
    for _ in range(DEEPEST):
        inner = (part.values() if isinstance(part, dict) else part for part in level if isinstance(part, dict | list))
        level = [part for parts in inner for part in parts]
    if level:
        raise ValueError(f"json_schema has more than {DEEPEST} levels of brackets: nest less deeply")
    text = _Translation(schema).regex(schema, "json_schema")
    if text is None:
        raise ValueError(
            f"json_schema={short(schema)} allows no text, or only texts with more than {RECURSION} levels of recursion"
        )
    return text


def is_any_object(schema: Schema) -> bool:
    """Return whether a schema allows every JSON object."""
    return schema.get("type") == "object" and not schema.keys() - DESCRIBING - {"type"}


def nested(schema: Schema, place: str) -> Schema:
    """Return a schema for use inside another one, where a JSON pointer such as `#/properties/a` leads to it.

    Its references then lead to the same parts as before.
    """
    return {name: _rebased(name, value, place) for name, value in schema.items() if name != "$id"}


def _rebased(keyword: str, value: Any, place: str) -> Any:
    """Return the value of a keyword with its references below `place`. Values that are data contain none."""
    if keyword in DATA:
        return value
    if keyword == "$ref" and isinstance(value, str) and value.startswith("#"):
        return place + value[1:]
    if isinstance(value, list):
        return [_rebased("", part, place) for part in value]
    if isinstance(value, dict):  # keywords, or names of any kind
        names = keyword in OBJECTS | DEFINITIONS
        return {name: _rebased("" if names else name, part, place) for name, part in value.items()}
    return value


class _Translation:
    """Translates the parts of one schema. None in place of a regex means that no text conforms."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        draft = str(root.get("$schema", "2020-12"))
        self._old = any(name in draft for name in OLD_DRAFTS)
        self._ref_alone = self._old and "2019-09" not in draft  # drafts that ignore keywords next to $ref
        if not self._old and "2020-12" not in draft:
            raise ValueError(
                f"json_schema.$schema={short(draft)} is not supported: give 2020-12, 2019-09, draft-07 or draft-06"
            )
        self._left = MOST_PARTS
        self._depth = 0
        self._open: Counter[str] = Counter()  # how often each reference encloses the current part

    def regex(self, schema: Any, path: str) -> str | None:
        """Return the regex of a part of the schema."""
        if isinstance(schema, bool):
            return any_value(DEPTH) if schema else None
        fields, path, followed = self._resolved(schema, path)
        if any(self._open[ref] >= RECURSION for ref in followed):
            return None
        self._open.update(followed)
        self._depth += 1
        if self._depth > DEEPEST:
            raise ValueError(f"{path} is nested in {DEEPEST} other schemas: nest less deeply")
        text = self._form(fields, path)
        self._depth -= 1
        self._open.subtract(followed)
        _check_size(len(text or ""), path)
        return text

    def _resolved(self, schema: Any, path: str, within: tuple[str, ...] = ()) -> tuple[Schema, str, tuple[str, ...]]:
        """Return an equivalent schema without $ref and allOf, its path for errors, and the references that were followed."""
        self._left -= 1
        if self._left < 0:
            raise ValueError(f"json_schema has more than {MOST_PARTS} parts after $ref is followed: make it smaller")
        if not isinstance(schema, dict):
            raise ValueError(f"{path} must be a JSON schema, got {short(schema)}")
        for name in schema:
            if name not in KNOWN or (name == "$id" and schema is not self._root):  # an inner $id changes what $ref means
                raise ValueError(f"{path}.{name} is not supported: leave it out")
        _check_values(schema, path)
        whole: Schema = {name: value for name, value in schema.items() if name not in ("$ref", "allOf")}
        where, followed = path, ()
        if "$ref" in schema:
            ref = schema["$ref"]
            if ref in within or len(within) > DEEPEST:
                raise ValueError(f"{path}.$ref={short(ref)} refers to itself, or to more than {DEEPEST} others")
            if self._ref_alone and whole.keys() - SILENT:
                raise ValueError(f"{path}.$ref is not supported together with other keywords in this draft: give allOf")
            target, where, more = self._resolved(*self._target(ref, path), (*within, ref))
            where, followed = path if whole.keys() - SILENT else where, (ref, *more)
            whole = merged(whole, target, path)
        if "allOf" in schema:
            for index, part in enumerate(schema["allOf"]):
                target, _, more = self._resolved(part, f"{path}.allOf[{index}]", within)
                self._left -= len(target.get("properties", ()))
                whole, followed = merged(whole, target, path), (*followed, *more)
        return whole, where, followed

    def _target(self, ref: str, path: str) -> tuple[Any, str]:
        """Return the part of the schema to which a reference points, and its path."""
        steps = ref.split("/")
        if steps[0] != "#":
            raise ValueError(f"{path}.$ref={short(ref)} is not supported: refer to a part of this schema, as #/$defs/NAME")
        target: Any = self._root
        where = "json_schema"
        for step in steps[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(target, list):
                target = {str(index): part for index, part in enumerate(target)}
            if not isinstance(target, dict) or name not in target:
                raise ValueError(f"{path}.$ref={short(ref)} does not exist in this schema")
            target, where = target[name], f"{where}.{name}"
        return target, where

    def _form(self, fields: Schema, path: str) -> str | None:
        """Return the regex of a schema that has neither $ref nor allOf."""
        for name in ("anyOf", "oneOf"):
            if name in fields:
                return self._alternatives(name, fields, path)
        if "enum" in fields or "const" in fields:
            return _values(fields, path)
        kinds = _kinds(fields, path)
        parts: list[str] = []
        for kind in kinds:
            if (text := self._typed(kind, fields, path)) is not None:
                parts.append(text)
        return union(parts)

    def _typed(self, kind: str, fields: Schema, path: str) -> str | None:
        """Return the regex of the values of one type."""
        match kind:
            case "object":
                return self._object(fields, path) if "properties" in fields else self._map(fields, path)
            case "array":
                return self._array(fields, path)
            case "string":
                return _string(fields, path)
            case "integer" | "number":
                return _number(fields, kind == "integer", path)
            case "boolean":
                return "(?:true|false)"
            case "null":
                return "null"
            case _:
                return any_value(DEPTH)

    def _alternatives(self, name: str, fields: Schema, path: str) -> str | None:
        """Return the regex of anyOf or oneOf. Raises ValueError if a text may conform to two schemas of oneOf."""
        parts: list[Any] = fields[name]
        rest = {key: value for key, value in fields.items() if key not in (name, "discriminator", *SILENT)}
        if name == "oneOf":
            tag = fields.get("discriminator", {}).get("propertyName")
            extra = [{"required": [tag]}] if isinstance(tag, str) else []
            parts = [{"allOf": [part, *extra]} for part in parts] if extra else parts
            for index, one in enumerate(parts):
                for other in parts[:index]:
                    if not apart(one, other, lambda part: self._resolved(part, path)[0]):
                        raise ValueError(
                            f"{path}.oneOf is only supported where its schemas have different types, or require the same "
                            "property with different values: give anyOf"
                        )
        texts: list[str] = []
        for index, part in enumerate(parts):
            if (text := self.regex({"allOf": [rest, part]} if rest else part, f"{path}.{name}[{index}]")) is not None:
                texts.append(text)
        return union(texts)

    def _object(self, fields: Schema, path: str) -> str | None:
        """Return the regex of objects with the named properties, in the order of the schema."""
        properties: Schema = fields["properties"]
        for name in ("patternProperties", "propertyNames"):
            if name in fields:
                raise ValueError(f"{path}.{name} is not supported together with properties: leave it out")
        required: list[str] = fields.get("required", [])
        if any(name not in properties for name in required):
            raise ValueError(f"{path}.required={short(required)} must list names of {path}.properties")
        least, most = _limits(fields, "Properties", path)
        if least > max(len({*required}), 1) or (most is not None and most < len(properties)):
            raise ValueError(f"{path}: minProperties and maxProperties are only supported where required ensures them")
        parts: list[tuple[str, bool]] = []
        for name, part in properties.items():
            text = self.regex(part, f"{path}.properties.{name}")
            if text is not None:
                parts.append((_member(literal(json_text(name)), text), name in required))
            elif name in required:
                return None
        if not parts:
            return None if least else _braces("")
        # The regex of n optional properties repeats each about n ** (log2(3) - 1) times: see `_some`.
        _check_size(sum(len(text) for text, _ in parts) * (1 if required else len(parts) ** 0.6), path)
        return _braces(_some(parts) if required or least else f"(?:{_some(parts)})?")

    def _map(self, fields: Schema, path: str) -> str | None:
        """Return the regex of objects whose properties may have any name."""
        if fields.get("required"):
            raise ValueError(f"{path}.required={short(fields['required'])} must list names of {path}.properties")
        least, most = _limits(fields, "Properties", path)
        if least > 1:  # a regex cannot exclude equal names, which count once
            raise ValueError(f"{path}.minProperties={least} is not supported: give at most 1, or name the properties")
        patterns: Schema = fields.get("patternProperties", {})
        if len(patterns) > 1 or (patterns and "propertyNames" in fields):
            raise ValueError(f"{path}.patternProperties is only supported with one pattern, and without propertyNames")
        more = fields.get("additionalProperties", True)
        key = {"type": "string"}
        place = "additionalProperties"
        for pattern, part in patterns.items():
            key, more, place = {**key, "pattern": pattern}, part, f"patternProperties.{pattern}"
        name = self.regex(
            {"allOf": [key, fields["propertyNames"]]} if "propertyNames" in fields else key, f"{path}.propertyNames"
        )
        value = any_value(DEPTH - 1) if more is True else self.regex(more, f"{path}.{place}")
        if name is None or value is None or most == 0:
            return None if least else _braces("")
        return _braces(comma_separated(_member(name, value), least, most))

    def _array(self, fields: Schema, path: str) -> str | None:
        """Return the regex of arrays."""
        least, most = _limits(fields, "Items", path)
        items: Any = fields.get("items", True)
        prefix: list[Any] = fields.get("prefixItems", [])
        if isinstance(items, list):
            if not self._old or prefix:
                raise ValueError(f"{path}.items={short(items)} is not supported: give prefixItems")
            prefix = items
        elif "additionalItems" in fields:
            raise ValueError(f"{path}.additionalItems is not supported: leave it out")
        if prefix or "prefixItems" in fields:
            parts = prefix[:most]
            if least > len(parts):
                raise ValueError(f"{path}.minItems={least} is not supported together with {len(parts)} schemas of items")
            texts = [self.regex(part, f"{path}.prefixItems[{index}]") for index, part in enumerate(parts)]
            known = [text for text in texts if text is not None]
            return None if len(known) < len(texts) else rf"\[{SPACE}{COMMA.join(known)}{SPACE}\]"
        item = any_value(DEPTH - 1) if items is True else self.regex(items, f"{path}.items")
        if item is None or most == 0:
            return None if least else rf"\[{SPACE}\]"
        return rf"\[{SPACE}{comma_separated(item, least, most)}{SPACE}\]"


def _check_size(size: float, path: str) -> None:
    """Raise ValueError if a regex of `size` characters is too long."""
    if size > LONGEST:
        raise ValueError(f"{path} makes a regex of more than {LONGEST} characters: make the schema smaller")


def _member(name: str, value: str) -> str:
    return f"{name}{SPACE}:{SPACE}{value}"


def _braces(text: str) -> str:
    return rf"\{{{SPACE}{text}{SPACE}\}}"


def _some(parts: Sequence[tuple[str, bool]]) -> str:
    """Return the regex of one or more of these texts, in this order, including all that are required."""
    first = next((index for index, (_, required) in enumerate(parts) if required), None)
    if first is not None:
        before = "".join(f"(?:{text}{COMMA})?" for text, _ in parts[:first])
        after = "".join(f"{COMMA}{text}" if required else f"(?:{COMMA}{text})?" for text, required in parts[first + 1 :])
        return f"{before}{parts[first][0]}{after}"
    if len(parts) == 1:
        return parts[0][0]
    middle = len(parts) // 2  # in halves: one alternative for each text that may come first would be quadratic
    right = _some(parts[middle:])
    return f"(?:{_some(parts[:middle])}(?:{COMMA}{right})?|{right})"


def _kinds(fields: Schema, path: str) -> list[str]:
    """Return the types that a schema allows, or `any`. Raises ValueError for keywords of other types."""
    names = fields.keys() - SILENT - {"type"}
    kinds = _types(fields)
    if "type" not in fields:
        if not names:
            return ["any"]
        kinds = [kind for kind, keywords in KEYWORDS.items() if names <= keywords and kind != "integer"]
    elif not kinds or any(kind not in KEYWORDS for kind in kinds):
        raise ValueError(f"{path}.type={short(fields['type'])} must name one or more of {', '.join(KEYWORDS)}")
    for name in sorted(names):
        if not any(name in KEYWORDS[kind] for kind in kinds):
            kind = " or ".join(kinds) if kinds else "keywords of other types, without a type"
            raise ValueError(f"{path}.{name} is not supported together with {kind}: leave it out")
    return [kind for kind in dict.fromkeys(kinds) if kind != "integer" or "number" not in kinds]


def _values(fields: Schema, path: str) -> str | None:
    """Return the regex of the values of enum or const. Raises ValueError for values of other types than `type`."""
    for name in fields.keys() - SILENT - {"type", "enum"}:
        if "enum" in fields or name != "const":
            other = "enum" if "enum" in fields else "const"
            raise ValueError(f"{path}.{name} is not supported together with {other}: leave it out")
    values = _enumerated(fields) or []
    for value in values if "type" in fields else []:
        if not {*_types_of(value)} & {*_types(fields)}:
            raise ValueError(f"{path}: {short(value)} is not of type {short(fields['type'])}: correct one of them")
    return union([literal(json_text(value)) for value in values])


def _string(fields: Schema, path: str) -> str:
    """Return the regex of strings."""
    least, most = _limits(fields, "Length", path)
    if "format" in fields:
        if "pattern" in fields:
            raise ValueError(f"{path}.pattern is not supported together with format: leave one of them out")
        if (name := fields["format"]) not in FORMATS:
            raise ValueError(f"{path}.format={short(name)} is not supported: give one of {', '.join(FORMATS)}")
        text, shortest, longest = FORMATS[name]
        if least > shortest or (most is not None and (longest is None or most < longest)):
            raise ValueError(f"{path}.format={short(name)} is not supported with these minLength or maxLength: leave them out")
        return f'"{text}"'
    if "pattern" in fields:
        try:
            return f'"{translated(fields["pattern"], least, most)}"'
        except ValueError as error:
            raise ValueError(f"{path}.pattern={short(fields['pattern'])} is not supported: {error}") from error
    if most is None:
        return f'"{CHARACTER}{{{least},}}"'
    return f'"{CHARACTER}{{{least},{most}}}"'


def _number(fields: Schema, whole: bool, path: str) -> str | None:
    """Return the regex of the numbers, or integers if `whole`, between the limits of the schema."""
    low: list[tuple[Decimal, bool]] = []
    high: list[tuple[Decimal, bool]] = []
    for name, side in (("minimum", low), ("exclusiveMinimum", low), ("maximum", high), ("exclusiveMaximum", high)):
        if name not in fields:
            continue
        value: Any = fields[name]
        excluded = name.startswith("exclusive")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{path}.{name}={short(value)} must be a number")
        most = LARGEST_EXCLUDED if excluded and not whole else 10**30
        if not abs(value) <= most:
            raise ValueError(f"{path}.{name}={short(value)} is not supported: give at most {most}, or leave it out")
        side.append((Decimal(repr(value)), excluded))
    return number(max(low, default=None), min(high, key=lambda limit: (limit[0], not limit[1]), default=None), whole)


def _limits(fields: Schema, of: str, path: str) -> tuple[int, int | None]:
    """Return the minimum and the maximum of a length; a maximum of None means no limit."""
    found: list[int | None] = []
    for name in (f"min{of}", f"max{of}"):
        value: Any = fields.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
            raise ValueError(f"{path}.{name}={short(value)} must be a whole number from 0")
        found.append(value)
    least, most = found[0] or 0, found[1]
    if most is not None and most < least:
        raise ValueError(f"{path}: max{of}={most} is less than min{of}={least}")
    return least, most


def _check_values(fields: Schema, path: str) -> None:
    """Raise ValueError, with the path, if the value of a keyword has the wrong form."""
    for name, value in fields.items():
        names = isinstance(value, list) and all(isinstance(part, str) for part in value)
        if name in LISTS and not (isinstance(value, list) and value):
            needed = "a list of values" if name == "enum" else "a list of schemas"
        elif name in OBJECTS and not isinstance(value, dict):
            needed = "an object"
        elif name in TEXTS and not isinstance(value, str):
            needed = "a text"
        elif (name == "required" and not names) or (name == "type" and not names and not isinstance(value, str)):
            needed = "a list of names"
        else:
            continue
        raise ValueError(f"{path}.{name} must be {needed}, got {short(value)}")


def merged(one: Schema, other: Schema, path: str) -> Schema:
    """Return the schema of the values that conform to both schemas.

    Raises ValueError, with the path, if no supported schema expresses this.
    """
    # A keyword `rest` of one schema also applies to what only the other one names, which no single schema can express.
    for first, second in ((one, other), (other, one)):
        for rest, named in REST:
            parts: Any = second.get(named, ())
            more = parts.keys() - first.get(named, {}).keys() if isinstance(parts, dict) else parts
            if more and first.get(rest, True) is not True:
                raise ValueError(f"{path}: {rest} of one schema is not supported together with {named} of another")
    both = dict(one)
    for name, value in other.items():
        if name in SILENT or name not in both:
            both.setdefault(name, value)
        elif json_text(both[name]) != json_text(value):
            both[name] = _joined(name, both[name], value, path)
    return both


def _joined(name: str, one: Any, other: Any, path: str) -> Any:
    """Return the value of the keyword `name` that has the effect of both of two different values."""
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (one, other))
    if name in LARGER and numbers:
        return max(one, other)
    if name in SMALLER and numbers:
        return min(one, other)
    if name == "required":
        return list(dict.fromkeys([*one, *other]))
    if name == "properties":
        return {**one, **{key: _both(one[key], part) if key in one else part for key, part in other.items()}}
    if name == "type":
        kinds = [_with_integers(_types({name: value})) for value in (one, other)]
        if both := kinds[0] & kinds[1]:
            return sorted(both)
    raise ValueError(f"{path}: two schemas that must both hold have different {name}: {short(one)} and {short(other)}")


def _both(one: Any, other: Any) -> Schema:
    """Return the schema of the values that conform to both; an existing allOf is extended, not nested."""
    parts: list[Any] = one["allOf"] if isinstance(one, dict) and [*one] == ["allOf"] else [one]
    return {"allOf": parts if other in parts else [*parts, other]}


def _types(fields: Schema) -> list[str]:
    """Return the types that `type` names; none without it."""
    kinds: Any = fields.get("type", [])
    return kinds if isinstance(kinds, list) else [kinds]


def _with_integers(kinds: Iterable[str]) -> set[str]:
    """Return types, with integers if there are numbers, because numbers include integers."""
    return {*kinds, "integer"} if "number" in kinds else {*kinds}


def _enumerated(fields: Schema) -> list[Any] | None:
    """Return the values of enum or const; None without either."""
    return fields["enum"] if "enum" in fields else [fields["const"]] if "const" in fields else None


def _types_of(value: Any) -> tuple[str, ...]:
    """Return the names of the JSON types that a value has."""
    match value:
        case bool():
            return ("boolean",)
        case int():
            return "integer", "number"
        case float():
            return ("number",)
        case str():
            return ("string",)
        case None:
            return ("null",)
        case list():
            return ("array",)
        case _:
            return ("object",)


def apart(one: Any, other: Any, resolved: Callable[[Any], Schema], depth: int = 3) -> bool:
    """Return whether certainly no text that the regex of one schema matches conforms to the other schema.

    `resolved` returns a schema without $ref and allOf; `depth` limits how deeply properties are compared.
    """
    if not depth or isinstance(one, bool) or isinstance(other, bool):
        return False
    first, second = resolved(one), resolved(other)
    values, others = _listed(first), _listed(second)
    if values is not None and others is not None:
        return not values & others
    kinds, more = _possible(first), _possible(second)
    if kinds and more and not kinds & more:
        return True
    parts, required = _required(first), _required(second)
    return any(apart(parts[name], required[name], resolved, depth - 1) for name in parts.keys() & required.keys())


def _listed(fields: Schema) -> set[tuple[str, str]] | None:
    """Return the values of enum or const; None without either, or with values that may equal others, such as 1.0 and 1."""
    values = _enumerated(fields)
    if values is None or any(isinstance(value, float | list | dict) for value in values):
        return None
    return {(_types_of(value)[-1], json_text(value)) for value in values}


def _possible(fields: Schema) -> set[str]:
    """Return the types that values may have; empty if that is unknown."""
    return _with_integers(_types(fields) or {name for value in _enumerated(fields) or [] for name in _types_of(value)})


def _required(fields: Schema) -> Schema:
    """Return the schemas of the properties that every text of a schema has; none if texts may be other than objects."""
    known = fields.get("type") == "object" or not fields.keys() & {"type", "anyOf", "oneOf", "enum", "const"}
    parts: Schema = fields.get("properties", {}) if known else {}
    return {name: part for name, part in parts.items() if name in fields.get("required", [])}
