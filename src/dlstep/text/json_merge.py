"""Join JSON schemas that must all hold, and find those that no value can conform to together."""

from collections.abc import Callable, Mapping
from typing import Any, cast

from ..core.checks import short
from .json_leaves import json_text

DESCRIBING = frozenset(
    ["title", "description", "default", "examples", "$schema", "$id", "$comment", "deprecated", "readOnly", "writeOnly"]
)
DEFINITIONS = frozenset(["$defs", "definitions"])
LARGER = frozenset(["minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"])
SMALLER = frozenset(["maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"])
# A keyword that applies to what others do not name, and these others.
REST = (
    ("additionalProperties", "properties"),
    ("additionalProperties", "patternProperties"),
    ("patternProperties", "properties"),
    ("items", "prefixItems"),
)
Schema = Mapping[str, Any]


def merged(one: Schema, other: Schema, path: str) -> Schema:
    """Return the schema of what conforms to both. Raises ValueError, with the path, if that is not supported."""
    for first, second in ((one, other), (other, one)):
        for rest, named in REST:
            parts: Any = second.get(named, ())
            more = set(cast("Schema", parts)) - set(first.get(named, ())) if isinstance(parts, dict) else parts
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
    """Return the value of a keyword that stands for two different ones."""
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (one, other))
    if name in LARGER and numbers:
        return max(one, other)
    if name in SMALLER and numbers:
        return min(one, other)
    if name == "required" and isinstance(one, list) and isinstance(other, list):
        return list(dict.fromkeys(cast("list[str]", [*one, *other])))
    if name == "properties" and isinstance(one, dict) and isinstance(other, dict):
        parts = cast("Schema", one)
        more = {key: {"allOf": [parts[key], part]} if key in parts else part for key, part in cast("Schema", other).items()}
        return {**parts, **more}
    if name == "type" and (kinds := _kinds(one) & _kinds(other)):
        return sorted(kinds)
    raise ValueError(f"{path}: two schemas that must both hold have different {name}: {short(one)} and {short(other)}")


def _kinds(kinds: Any) -> set[str]:
    """Return the types that a `type` allows."""
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
    """Return whether surely no value conforms to both schemas, where each is written with all that it requires."""
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
    """Return the values of enum or const, if they are simple to compare."""
    values: Any = fields["enum"] if "enum" in fields else [fields["const"]] if "const" in fields else None
    if not isinstance(values, list) or any(isinstance(value, float | list | dict) for value in cast("list[Any]", values)):
        return None
    return {(types_of(value)[-1], json_text(value)) for value in cast("list[Any]", values)}


def _possible(fields: Schema) -> set[str]:
    """Return the types that values may have; empty if that is unknown."""
    kinds = _kinds(fields["type"]) if "type" in fields else set[str]()
    values: Any = fields["enum"] if "enum" in fields else [fields["const"]] if "const" in fields else []
    if not kinds and isinstance(values, list):
        kinds = {name for value in cast("list[Any]", values) for name in types_of(value)}
    return kinds | {"integer"} if "number" in kinds else kinds


def _required(fields: Schema) -> Schema:
    """Return the properties that every text of a schema has, if its texts are objects."""
    properties: Any = fields.get("properties", {})
    known = fields.get("type") == "object" or not fields.keys() & {"type", "anyOf", "oneOf", "enum", "const"}
    if not known or not isinstance(properties, dict):
        return {}
    required: Any = fields.get("required", [])
    return {name: part for name, part in cast("Schema", properties).items() if name in required}
