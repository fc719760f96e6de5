"""Which JSON schemas can be compiled so that every answer conforms to them.

`outlines-core` 0.2 ignores keywords that it does not know, and several combinations of those that it
knows: `minProperties`, a `required` name without a property, `type` beside `anyOf`, `allOf`, `oneOf`,
and more. Only forms that it respects as a whole pass; everything else is refused by its path.
"""

import json
from collections.abc import Mapping
from typing import Any, cast

from ..core.checks import short

DESCRIBING = frozenset(
    ["title", "description", "default", "examples", "$schema", "$id", "$comment", "deprecated", "readOnly", "writeOnly"]
)
DEFINITIONS = frozenset(["$defs", "definitions"])
FORMATS = ("date", "date-time", "uuid")  # the texts of "time" that outlines-core makes are no JSON
# The keywords that may stand together, by the one that decides.
BESIDE: dict[str, frozenset[str]] = {
    "$ref": frozenset(),
    "anyOf": frozenset(),
    "enum": frozenset(["type"]),
    "const": frozenset(["type"]),
    "object": frozenset(["type", "properties", "required", "additionalProperties"]),
    "array": frozenset(["type", "items", "minItems", "maxItems"]),
    "tuple": frozenset(["type", "prefixItems", "items"]),
    "string": frozenset(["type", "minLength", "maxLength"]),
    "format": frozenset(["type", "format"]),
    "plain": frozenset(["type"]),
}
PLAIN = ("string", "number", "integer", "boolean", "null")
Schema = Mapping[str, Any]


def check_schema(schema: Any, path: str = "json_schema") -> None:
    """Raise ValueError for a schema whose answers might not conform to it, with the path of the cause."""
    if not isinstance(schema, dict):
        raise ValueError(f"{path} must be a JSON schema, got {short(schema)}")
    fields = cast("Schema", schema)
    form = _form(fields, path)
    for name in fields:
        if name not in BESIDE[form] | DESCRIBING | DEFINITIONS and name != form:
            raise ValueError(f"{path}.{name} is not supported{_beside(form, name)}: leave it out")
    for name in DEFINITIONS & fields.keys():
        _check_parts(fields[name], f"{path}.{name}")
    if form in ("enum", "const"):
        _check_values(fields, form, path)
    elif form == "anyOf":
        _check_list(fields["anyOf"], f"{path}.anyOf")
    elif form == "object":
        _check_object(fields, path)
    elif form in ("array", "tuple"):
        _check_array(fields, path)
    elif form == "format" and fields["format"] not in FORMATS:
        raise ValueError(f"{path}.format={short(fields['format'])} is not supported: give one of {', '.join(FORMATS)}")


def is_any_object(schema: Schema) -> bool:
    """Return whether a schema allows every JSON object."""
    return schema.get("type") == "object" and not schema.keys() - DESCRIBING - {"type"}


def _form(fields: Schema, path: str) -> str:
    """Return the key of `BESIDE` for a schema."""
    for form in ("$ref", "anyOf", "enum", "const"):
        if form in fields:
            return form
    kind = fields.get("type", "object" if "properties" in fields else None)
    if isinstance(kind, list):
        unknown = [name for name in cast("list[Any]", kind) if name not in PLAIN]
        if unknown or not kind:
            raise ValueError(
                f"{path}.type={short(cast(object, kind))} is not supported: give anyOf with a schema for each type"
            )
        return "plain"
    if kind == "array":
        return "tuple" if "prefixItems" in fields else "array"
    if kind == "string":
        return "format" if "format" in fields else "string"
    if kind == "object":
        return "object"
    if kind in PLAIN:
        return "plain"
    names = ", ".join(["object", "array", *PLAIN])
    raise ValueError(f"{path} needs one of $ref, anyOf, enum, const, or a type: one of {names}")


def _beside(form: str, name: str) -> str:
    """Return the words that say what a keyword does not go with; empty if it is never supported."""
    known = any(name in others or name == other for other, others in BESIDE.items())
    return f" beside {form}" if known and form != "plain" else " beside this type" if known else ""


def _check_values(fields: Schema, form: str, path: str) -> None:
    """Check that the type of listed values, if given, is the type of each."""
    values: Any = fields["enum"] if form == "enum" else [fields["const"]]
    if not isinstance(values, list) or not values:
        raise ValueError(f"{path}.enum must be a list of values, got {short(cast(object, values))}")
    if "type" not in fields:
        return
    for value in cast("list[Any]", values):
        names = _types_of(value)
        if fields["type"] not in names:
            raise ValueError(f"{path}: {short(value)} is not of type {short(fields['type'])}: correct one of them")


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


def _check_object(fields: Schema, path: str) -> None:
    """Check the properties: named so that JSON needs no escapes, and all required ones present."""
    properties: Any = fields.get("properties", {})
    _check_parts(properties, f"{path}.properties")
    for name in properties:
        if json.dumps(name, ensure_ascii=False) != f'"{name}"':
            raise ValueError(f"{path}.properties: the name {short(name)} needs escapes in JSON, which is not supported")
    required: Any = fields.get("required", [])
    if not isinstance(required, list) or any(name not in properties for name in cast("list[Any]", required)):
        raise ValueError(f"{path}.required={short(cast(object, required))} must list names of {path}.properties")
    more = fields.get("additionalProperties", True)
    if not isinstance(more, bool):
        check_schema(more, f"{path}.additionalProperties")
    if more is False and not properties:
        raise ValueError(f"{path}.additionalProperties=False needs properties: without them, give const={{}}")


def _check_array(fields: Schema, path: str) -> None:
    """Check the schemas of items."""
    if "prefixItems" in fields:
        _check_list(fields["prefixItems"], f"{path}.prefixItems")
    if (items := fields.get("items", True)) is not True and not (items is False and "prefixItems" in fields):
        check_schema(items, f"{path}.items")


def _check_parts(parts: Any, path: str) -> None:
    """Check schemas by name."""
    if not isinstance(parts, dict):
        raise ValueError(f"{path} must be an object of schemas, got {short(parts)}")
    for name, part in cast("Schema", parts).items():
        check_schema(part, f"{path}.{name}")


def _check_list(parts: Any, path: str) -> None:
    """Check a list of schemas."""
    if not isinstance(parts, list) or not parts:
        raise ValueError(f"{path} must be a list of schemas, got {short(parts)}")
    for index, part in enumerate(cast("list[Any]", parts)):
        check_schema(part, f"{path}[{index}]")
