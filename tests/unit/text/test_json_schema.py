"""Every text of a schema that is accepted conforms to it; what is not supported is refused by its path."""

import json
import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import assume, given, settings, strategies as st
from jsonschema import Draft202012Validator
from jsonschema.validators import validator_for

from dlstep.core import Spec
from dlstep.core.automaton import Automaton, members
from dlstep.serve.http.schema import Function, Tool
from dlstep.serve.http.tool_calls import call_schema
from dlstep.text.constraints import compiled
from dlstep.text.json_regex import FORMATS
from dlstep.text.json_schema import KNOWN, schema_regex

FORMAT_CHECKER = Draft202012Validator.FORMAT_CHECKER
BYTES = Spec(256, (257,), 258, pieces=(*[bytes([byte]) for byte in range(256)], b"", b""))
ORDINARY: list[dict[str, Any]] = json.loads(Path(__file__).with_name("ordinary_schemas.json").read_text(encoding="utf-8"))
NAMES = st.sampled_from(["a", "b", "é", "long name", "$ref", "enum", 'quoted "\\'])
VALUES = st.none() | st.booleans() | st.integers(-9, 99) | st.text(max_size=4) | st.lists(st.integers(0, 9), max_size=2)
VALUES |= st.just({"$ref": "#"})  # data, and no reference
SIZES = st.integers(0, 3)
LIMITS = st.integers(-120, 120) | st.sampled_from([-1.5, -0.01, 0.5, 12.25])


def numbers(low: float, size: int, excluded: bool, kinds: list[str]) -> dict[str, Any]:
    """A schema of numbers within two limits, one of them excluded."""
    names = ("exclusiveMinimum", "maximum") if excluded else ("minimum", "exclusiveMaximum")
    return {"type": kinds, names[0]: low, names[1]: low + size}


PATTERNS = st.sampled_from(["^[a-z]{2,4}$", "b+", "^x", "\\d$"]).map(lambda pattern: {"type": "string", "pattern": pattern})
LIMITED = st.builds(
    numbers, LIMITS, st.sampled_from([1, 2, 30]), st.booleans(), st.sampled_from([["integer"], ["number"], ["number", "null"]])
)
LEAVES = st.one_of(
    st.sampled_from([{"type": name} for name in ("string", "integer", "number", "boolean", "null")]),
    st.sampled_from(
        [{"type": ["string", "null"], "maxLength": 2}, {"type": ["integer", "boolean"]}, {"$ref": "#/$defs/shared"}]
    ),
    st.sampled_from([*FORMATS]).map(lambda name: {"type": "string", "format": name}),
    st.lists(VALUES, min_size=1, max_size=3).map(lambda values: {"enum": values}),
    VALUES.map(lambda value: {"const": value}),
    st.builds(lambda low, more: {"type": "string", "minLength": low, "maxLength": low + more}, SIZES, SIZES),
    LIMITS.map(lambda low: {"type": "number", "minimum": low}),
    LIMITED,
    PATTERNS,
)


def objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Schemas of objects, with and without required properties."""

    def made(parts: dict[str, Any], needed: list[bool], more: Any, least: int) -> dict[str, Any]:
        required = [name for name, given_ in zip(parts, needed, strict=False) if given_]
        limits = {"minProperties": least} if least else {}
        return {"type": "object", "properties": parts, "required": required, "additionalProperties": more, **limits}

    parts = st.dictionaries(NAMES, inner, min_size=1, max_size=3)
    return st.builds(made, parts, st.lists(st.booleans(), min_size=3, max_size=3), st.booleans() | inner, st.integers(0, 1))


def tagged(parts: list[Any], required: bool) -> dict[str, Any]:
    """A schema with `oneOf` whose objects have a tag; a discriminator, as in OpenAPI, where the tag is not required."""
    alternatives = [
        {"type": "object", "properties": {"tag": {"const": index}, "value": part}, "required": ["tag"] if required else []}
        for index, part in enumerate(parts)
    ]
    return {"oneOf": alternatives} if required else {"oneOf": alternatives, "discriminator": {"propertyName": "tag"}}


def tuples(parts: list[Any], items: bool, most: int) -> dict[str, Any]:
    """A schema of arrays whose first items have separate schemas."""
    return {"type": ["array", "null"], "prefixItems": parts, "items": items, "maxItems": most}


def joined(first: Any, second: Any, rest: Any) -> dict[str, Any]:
    """A schema with `allOf` that says two things about the same property."""
    parts = [{"type": "object", "properties": {"a": part}} for part in (first, second)]
    return {"allOf": parts, "properties": {"b": rest}, "required": ["a"]}


# Schemas that hold others, by what they are made of.
FORMS: dict[str, Callable[[st.SearchStrategy[Any]], st.SearchStrategy[Any]]] = {
    "limits": lambda _: LIMITED,
    "patterns": lambda _: PATTERNS,
    "objects": objects,
    "arrays": lambda inner: st.builds(
        lambda items, low, more: {"type": "array", "items": items, "minItems": low, "maxItems": low + more}, inner, SIZES, SIZES
    ),
    "tuples": lambda inner: st.builds(tuples, st.lists(inner, min_size=1, max_size=2), st.booleans(), SIZES),
    "anyOf": lambda inner: st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"anyOf": parts}),
    "anyOf beside properties": lambda inner: st.builds(
        lambda parts, more: {"anyOf": parts, "type": "object", "properties": {"a": more}},
        st.lists(objects(inner), min_size=1, max_size=2),
        inner,
    ),
    "tagged oneOf": lambda inner: st.builds(tagged, st.lists(inner, min_size=1, max_size=3), st.booleans()),
    "oneOf": lambda inner: inner.map(
        lambda part: {"oneOf": [{"type": "object", "properties": {"a": part}}, {"type": "string"}, {"const": None}]}
    ),
    "allOf": lambda inner: st.builds(
        joined, st.sampled_from([{}, {"type": ["integer", "string"]}, {"minimum": 0}, {"maximum": 9}]), LIMITED | inner, inner
    ),
    "maps": lambda inner: inner.map(lambda part: {"type": "object", "additionalProperties": part, "minProperties": 1}),
    "patternProperties": lambda inner: inner.map(
        lambda part: {"type": "object", "patternProperties": {"^[a-c]+$": part}, "additionalProperties": False}
    ),
    "propertyNames": lambda inner: inner.map(
        lambda part: {"additionalProperties": part, "propertyNames": {"enum": ["a", "b"]}, "maxProperties": 2}
    ),
    "recursion": lambda inner: st.builds(
        lambda part, ref: {"type": "object", "properties": {"value": part, "next": {"$ref": ref}}},
        inner,
        st.sampled_from(["#", "#/$defs/tree"]),
    ),
}
ANY_OBJECT = {"type": "object"}
TREE = {"properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}, "required": ["children"]}
SCHEMAS = st.recursive(
    LEAVES | st.sampled_from([{}, {"type": ["object", "null"]}]),
    lambda inner: st.one_of([form(inner) for form in FORMS.values()]),
    max_leaves=4,
) | st.just(ANY_OBJECT)


@cache
def distances(automaton: Automaton) -> list[int]:
    """The least number of ids from each state to an accepting one."""
    least = dict.fromkeys(members(automaton.accepting), 0)
    for distance in range(1, len(automaton.moves)):
        near = [state for state, row in enumerate(automaton.moves) if state not in least and least.keys() & {*row}]
        least |= dict.fromkeys(near, distance)
    return [least[state] for state in range(len(automaton.moves))]


def text_of(automaton: Automaton, random: Random) -> bytes:
    """A text of the language: some random steps, then the shortest way to an end."""
    least, free = distances(automaton), random.randrange(30)
    ids: dict[int, list[int]] = {}
    for token, letter in enumerate(automaton.class_of):
        ids.setdefault(letter, []).append(token)
    state, text = 0, b""
    while least[state] or (free > 0 and random.random() < 0.8):
        letters = [letter for letter, after in enumerate(automaton.moves[state]) if after >= 0]
        if not letters:
            break
        shortest = min(letters, key=lambda letter: least[automaton.moves[state][letter]])
        letter = random.choice(letters) if free > 0 else shortest
        text, state, free = text + bytes([random.choice(ids[letter])]), automaton.moves[state][letter], free - 1
    return text


def check_texts(schema: dict[str, Any], count: int, seed: int) -> None:
    """Assert that random texts of a schema conform to it, formats included."""
    kind = validator_for(schema, default=Draft202012Validator)
    validator, random = kind(schema, format_checker=kind.FORMAT_CHECKER), Random(seed)
    automaton = compiled("json_schema", json.dumps(schema), BYTES)
    for _ in range(count):
        text = text_of(automaton, random)
        assert validator.is_valid(json.loads(text)), text


SHARED = LEAVES.filter(lambda leaf: "$ref" not in leaf)
REFUSED = (
    r"allows no text|two schemas that must both hold|is not supported together with|"
    r"is not of type"
)


def with_definitions(schema: dict[str, Any], shared: dict[str, Any]) -> dict[str, Any]:
    """The schema with the definitions that it may refer to."""
    return {**schema, "$defs": {"shared": shared, "tree": TREE}} if schema != ANY_OBJECT else schema


def check_with(schema: dict[str, Any], shared: dict[str, Any], seed: int) -> None:
    """Assert that random texts of a schema conform to it; where it merges two schemas, it may be refused."""
    whole = with_definitions(schema, shared)
    try:
        schema_regex(whole)
    except ValueError as error:
        merges = "allOf" in json.dumps(schema) or "anyOf" in json.dumps(schema)
        assert re.search(REFUSED if merges else "allows no text", str(error)), error
        assume(False)
    check_texts(whole, 10, seed)


@given(schema=SCHEMAS, shared=SHARED, seed=st.integers(0, 99))
def test_every_text_conforms(schema: dict[str, Any], shared: dict[str, Any], seed: int) -> None:
    check_with(schema, shared, seed)


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=max(4, (settings.default.max_examples if settings.default else 20) // 6))
@given(data=st.data())
def test_every_text_of_each_form_conforms(form: str, data: st.DataObject) -> None:
    check_with(data.draw(FORMS[form](LEAVES)), data.draw(SHARED), data.draw(st.integers(0, 99)))


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=max(4, (settings.default.max_examples if settings.default else 20) // 6))
@given(data=st.data())
def test_every_text_of_a_call_conforms_to_the_schema_of_its_function(form: str, data: st.DataObject) -> None:
    schemas = data.draw(st.lists(FORMS[form](LEAVES | st.just({"$ref": "#/$defs/shared"})), min_size=1, max_size=2))
    whole = {f"f{index}": with_definitions(schema, data.draw(SHARED)) for index, schema in enumerate(schemas)}
    tools = [Tool(type="function", function=Function(name=name, parameters=each)) for name, each in whole.items()]
    calls, random = call_schema(tools, "required"), Random(data.draw(st.integers(0, 99)))
    try:
        regexes = [schema_regex(each) for each in whole.values()]
    except ValueError:
        return
    assert all(regex in schema_regex(calls) for regex in regexes)
    for _ in range(10):
        call = json.loads(text_of(compiled("json_schema", json.dumps(calls), BYTES), random))
        assert Draft202012Validator(whole[call["name"]], format_checker=FORMAT_CHECKER).is_valid(call["arguments"]), call


def test_properties_have_the_order_of_the_schema() -> None:
    names = ["c", "a", "d", "b"]
    schema = {"properties": {name: {"type": "null"} for name in names}, "required": ["d"]}
    automaton, random = compiled("json_schema", json.dumps(schema), BYTES), Random(0)
    seen = {tuple(json.loads(text_of(automaton, random))) for _ in range(100)}
    assert ("c", "a", "d", "b") in seen or len(seen) > 4
    for keys in seen:
        assert "d" in keys and [name for name in names if name in keys] == [*keys]


def test_ordinary_schemas_are_accepted(report: Callable[[str], None]) -> None:
    accepted: list[dict[str, Any]] = []
    refused: Counter[str] = Counter()
    for schema in ORDINARY:
        try:
            schema_regex(schema)
        except ValueError as error:
            refused[re.split(r"[=\s]", str(error))[0].rpartition(".")[2]] += 1
        else:
            accepted.append(schema)
    causes = ", ".join(f"{name} {count}" for name, count in sorted(refused.items(), key=lambda item: (-item[1], item[0])))
    report(f"{len(accepted)} of {len(ORDINARY)} ordinary JSON schemas are accepted; refused by keyword: {causes}")
    assert len(ORDINARY) == 200 and len(accepted) >= 140
    for index, schema in enumerate(Random(0).sample(accepted, 25)):
        check_texts(schema, 10, index)


JUNK = st.recursive(
    VALUES | st.sampled_from(["string", "object", "#", "#/anyOf/0", "^a", 1.5]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(sorted(KNOWN)), inner, max_size=4),
    max_leaves=8,
)


@given(schema=st.dictionaries(st.sampled_from(sorted(KNOWN)), JUNK, min_size=1, max_size=4))
def test_any_schema_is_translated_or_refused(schema: Any) -> None:
    try:
        assert isinstance(schema_regex(schema), str)
    except ValueError as error:
        assert "json_schema" in str(error)


TEXT, INTEGER = {"type": "string"}, {"type": "integer"}
A, B = ({"type": "object", "properties": {"tag": {"const": name}}} for name in "ab")
DEEP: dict[str, Any] = {"type": "string"}
for _ in range(70):
    DEEP = {"type": "array", "items": DEEP}
LARGE = {"properties": {f"p{index}": {"minimum": 1} for index in range(99)}}
WIDE = {f"d{index}": {"type": "array", "prefixItems": [{"$ref": f"#/$defs/d{index + 1}"}] * 9} for index in range(9)}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "object", "minProperties": 2}, "json_schema.minProperties=2 is not supported: give at most 1"),
        ({"properties": {"a": INTEGER}, "patternProperties": {}}, "patternProperties is not supported together with"),
        ({"patternProperties": {"a": {}, "b": {}}}, "json_schema.patternProperties is only supported with one pattern"),
        ({"properties": {"a": INTEGER}, "required": ["b"]}, "must list names of json_schema.properties"),
        ({"properties": {"a": {"type": "string", "pattern": "(?=b)"}}}, "properties.a.pattern='(?=b)' is not supported"),
        ({"allOf": []}, "json_schema.allOf must be a list of schemas"),
        ({"allOf": [{**A, "additionalProperties": False}, {"properties": {"b": {}}}]}, "together with properties of another"),
        ({"allOf": [{"additionalProperties": False}, {"patternProperties": {"a": {}}}]}, "with patternProperties of another"),
        ({"allOf": [{"type": "array", "items": TEXT}, {"prefixItems": [{}]}]}, "with prefixItems of another"),
        ({"allOf": [{"pattern": "a"}, {"pattern": "b"}]}, "have different pattern: 'a' and 'b'"),
        ({"allOf": [{"const": 1}, {"const": True}]}, "have different const"),
        ({"oneOf": [INTEGER, {"type": "number"}]}, "oneOf is only supported where its schemas have different types"),
        ({"oneOf": [A, B]}, "json_schema.oneOf is only supported"),
        ({"oneOf": [{"enum": [1, 2]}, {"enum": [2.0]}]}, "json_schema.oneOf is only supported"),
        ({"anyOf": [TEXT], "minimum": 3}, "json_schema.anyOf[0].minimum is not supported together with string"),
        ({"anyOf": [TEXT, 3]}, "json_schema.anyOf[1] must be a JSON schema, got 3"),
        ({"enum": ["a", 1], "type": "string"}, "1 is not of type 'string'"),
        ({"enum": ["a"], "minLength": 3}, "json_schema.minLength is not supported together with enum"),
        ({"type": "integer", "minimum": 3, "maximum": 2}, "allows no text"),
        ({"type": "integer", "minimum": True}, "json_schema.minimum=True must be a number"),
        ({"type": "number", "exclusiveMaximum": 1e300}, "give at most 1000000000"),
        ({"type": "string", "format": "ipv6"}, "json_schema.format='ipv6' is not supported: give one of date, date-time"),
        ({"type": "string", "format": "date", "minLength": 30}, "format='date' is not supported with these minLength"),
        ({"type": "string", "minLength": -1}, "json_schema.minLength=-1 must be a whole number from 0"),
        ({"type": "string", "minLength": 2, "maxLength": 1}, "maxLength=1 is less than minLength=2"),
        ({"type": "text"}, "json_schema.type='text' must name one or more of object, array"),
        ({"minLength": 3, "minimum": 3}, "json_schema.minLength is not supported together with"),
        ({"items": [TEXT]}, "give prefixItems"),
        (
            {"$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#/$defs/a", "type": "string", "$defs": {"a": {}}},
            "json_schema.$ref is not supported together with other keywords in this draft: give allOf",
        ),
        ({"$schema": "http://json-schema.org/draft-04/schema#"}, "is not supported: give 2020-12"),
        ({"$ref": "#"}, "refers to itself"),
        ({"$ref": "#/$defs/a"}, "json_schema.$ref='#/$defs/a' does not exist"),
        ({"$ref": "https://example.org/a"}, "refer to a part of this schema"),
        ({"properties": {"a": {"$id": "x"}}}, "json_schema.properties.a.$id is not supported"),
        ({"properties": {"a": {"$ref": "#"}}, "required": ["a"]}, "only texts with more than 3 levels of recursion"),
        ({"if": {}, "then": {}}, "json_schema.if is not supported: leave it out"),
        (DEEP, "more than 60 levels of brackets"),
        ({"$ref": "#/$defs/d0", "$defs": {**WIDE, "d9": TEXT}}, "make it smaller"),
        ({"allOf": [{"$ref": f"#/$defs/{name}"} for name in "ab" * 99], "$defs": {"a": LARGE, "b": LARGE}}, "make it smaller"),
        ({"properties": {f"p{index}": {} for index in range(3000)}}, "makes a regex of more than 1048576 characters"),
        ({"pattern": 3}, "json_schema.pattern must be a text, got 3"),
        ({"type": ["string", {}]}, "json_schema.type must be a list of names"),
        (3, "json_schema must be a JSON schema, got 3"),
    ],
)  # fmt: skip
def test_what_might_not_hold_is_refused_by_its_path(schema: Any, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        schema_regex(schema)
    assert message in str(caught.value)
