"""The reference of the HTTP API as Markdown, written from the OpenAPI document of `dlstep serve`."""

import json
from collections.abc import Iterator
from typing import Any

from option_text import escaped, table

from dlstep.serve.http.app import create_app
from dlstep.serve.router.router import Router
from dlstep.serve.settings import ServeOptions

Json = dict[str, Any]
# Schemas of OpenAI's client library, which are described in its documentation.
OF_OPENAI = ("Completion", "ChatCompletion")
LIMITS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "less than {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "maxItems": "at most {} items",
}


def document() -> Json:
    """Return the OpenAPI document, as a server with an API key sends it."""
    return create_app(Router([], ServeOptions()), ("key",), ("admin",)).openapi()


def text() -> str:
    """Return a section for every route, then one for every schema that they use."""
    api = document()
    schemas = api["components"]["schemas"]
    routes = [(method, path, route) for path, methods in api["paths"].items() for method, route in methods.items()]
    used = dict[str, None]()
    for _, _, route in routes:
        _collect(route, schemas, used)
    parts = [line for each in routes for line in _route(*each)]
    parts.append("## Schemas\n")
    parts += [line for name in used for line in _schema(name, schemas[name])]
    return "\n".join(parts)


def _collect(value: Any, schemas: Json, used: dict[str, None]) -> None:
    """Add the names of the schemas that a part of the document refers to, directly or not."""
    if isinstance(value, list):
        for each in value:
            _collect(each, schemas, used)
    elif isinstance(value, dict):
        name = str(value.get("$ref", "")).rpartition("/")[2]
        if name and name not in used and name not in OF_OPENAI:
            used[name] = None
            _collect(schemas[name], schemas, used)
        for each in value.values():
            _collect(each, schemas, used)


def _route(method: str, path: str, route: Json) -> Iterator[str]:
    yield f"## `{method.upper()} {path}`\n"
    yield f"{escaped(route.get('description', ''))}\n"
    for parameter in route.get("parameters", ()):
        kind = _kind(parameter["schema"])
        yield f"- `{parameter['name']}` (in the {parameter['in']}): {kind}"
    if body := route.get("requestBody"):
        yield f"\nRequest body: {_kind(body['content']['application/json']['schema'])}"
    yield ""
    rows = [
        (f"`{status}`", _answer(answer), escaped(answer["description"]))
        for status, answer in sorted(route["responses"].items())
    ]
    yield table(("status", "body", "meaning"), rows)


def _answer(answer: Json) -> str:
    """Return the types of a response's bodies, one for each media type."""
    kinds = list[str]()
    for media, content in answer.get("content", {}).items():
        kind = _kind(content["schema"]) if content.get("schema") else ""
        kinds.append(kind if media == "application/json" and kind else f"`{media}`")
    return " or ".join(kinds)


def _schema(name: str, schema: Json) -> Iterator[str]:
    yield f"### {name}\n"
    if words := schema.get("description"):
        yield f"{escaped(' '.join(words.split()))}\n"
    needed = schema.get("required", ())
    rows = [
        (f"`{field}`", _kind(each), "yes" if field in needed else "", escaped(each.get("description", "")))
        for field, each in schema.get("properties", {}).items()
    ]
    yield table(("field", "type", "required", "meaning"), rows)


def _kind(schema: Json) -> str:
    """Return the type of a value in words, with its bounds and a link to its schema."""
    if reference := schema.get("$ref"):
        name = reference.rpartition("/")[2]
        return f"OpenAI's `{name}`" if name in OF_OPENAI else f"[{name}](#{name.lower()})"
    if several := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(dict.fromkeys(_kind(each) for each in several))
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return " or ".join(f"`{json.dumps(value)}`" for value in values)
    kind = schema.get("type", "any value")
    if kind == "array":
        kind = f"array of {_kind(schema['items'])}" if schema.get("items") else "array"
    elif kind == "object" and isinstance(inner := schema.get("additionalProperties"), dict) and inner:
        kind = f"object of {_kind(inner)}"
    limits = [words.format(_number(schema[name])) for name, words in LIMITS.items() if name in schema]
    return ", ".join([kind, *limits])


def _number(value: float) -> str:
    """Return a bound as text. Integers lose their fraction: the document has 128.0 instead of 128."""
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else f"{value:g}"
