"""Check the keywords of JSON schemas, merge schemas that must all hold, and find schemas that exclude each other."""

from collections.abc import Callable, Mapping
from typing import Any, cast

from ..core.checks import short
from .json_leaves import json_text

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
Schema = Mapping[str, Any]


def check_values(fields: Schema, path: str) -> None:
    """Raise ValueError, with the path, if the value of a keyword has the wrong form."""
    for name, value in fields.items():
        names = isinstance(value, list) and all(isinstance(part, str) for part in cast("list[Any]", value))
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
        raise ValueError(f"{path}.{name} must be {needed}, got {short(cast(object, value))}")


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
        if name in DESCRIBING or name in DEFINITIONS or name not in both:
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
    if name == "type" and (kinds := _kinds(one) & _kinds(other)):
        return sorted(kinds)
    raise ValueError(f"{path}: two schemas that must both hold have different {name}: {short(one)} and {short(other)}")


def _both(one: Any, other: Any) -> Schema:
    """Return the schema of the values that conform to both; an existing allOf is extended, not nested."""
    parts: list[Any] = one["allOf"] if isinstance(one, dict) and [*cast("Schema", one)] == ["allOf"] else [one]
    return {"allOf": parts if other in parts else [*parts, other]}


def _kinds(kinds: Any) -> set[str]:
    """Return the types that a `type` allows; numbers include integers."""
    names: set[str] = {*cast("list[str]", kinds)} if isinstance(kinds, list) else {kinds}
    return names | {"integer"} if "number" in names else names


def types_of(value: Any) -> tuple[str, ...]:
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
    values: Any = fields["enum"] if "enum" in fields else [fields["const"]] if "const" in fields else None
    if values is None or any(isinstance(value, float | list | dict) for value in cast("list[Any]", values)):
        return None
    return {(types_of(value)[-1], json_text(value)) for value in cast("list[Any]", values)}


def _possible(fields: Schema) -> set[str]:
    """Return the types that values may have; empty if that is unknown."""
    kinds = _kinds(fields["type"]) if "type" in fields else set[str]()
    values: Any = fields["enum"] if "enum" in fields else [fields["const"]] if "const" in fields else []
    if not kinds:
        kinds = {name for value in cast("list[Any]", values) for name in types_of(value)}
    return kinds | {"integer"} if "number" in kinds else kinds


def _required(fields: Schema) -> Schema:
    """Return the schemas of the properties that every text of a schema has; none if texts may be other than objects."""
    known = fields.get("type") == "object" or not fields.keys() & {"type", "anyOf", "oneOf", "enum", "const"}
    parts: Schema = fields.get("properties", {}) if known else {}
    return {name: part for name, part in parts.items() if name in fields.get("required", [])}
