"""Every text of a schema that is accepted conforms to it; what is not supported is refused by its path."""

import json
import re
from collections import Counter
from itertools import product
from pathlib import Path
from random import Random

import pytest
from hypothesis import assume, given, settings, strategies as st
from jsonschema import Draft202012Validator
from jsonschema.validators import validator_for

from dlstep.serve.http.schema import ChatRequest, Function, Tool
from dlstep.serve.http.tool_calls import call_schema
from dlstep.text.dfa import TooManyStates
from dlstep.text.json_automaton import schema_automaton
from dlstep.text.json_schema import _READ, FORMATS

FORMAT_CHECKER = Draft202012Validator.FORMAT_CHECKER
ORDINARY = json.loads(Path(__file__).with_name("ordinary_schemas.json").read_text())
NAMES = st.sampled_from(["a", "b", "é", "long name", "$ref", "enum", 'quoted "\\'])
VALUES = st.none() | st.booleans() | st.integers(-9, 99) | st.text(max_size=4) | st.lists(st.integers(0, 9), max_size=2)
VALUES |= st.just({"$ref": "#"})  # data, and no reference
SIZES = st.integers(0, 3)
LIMITS = st.integers(-120, 120) | st.sampled_from([-1.5, -0.01, 0.5, 12.25, 10**15 - 1, 10**17, -1e16, 2**53 + 1, 1e300])


def numbers(low, size, excluded, kinds):
    """A schema of numbers within two limits, one of them excluded."""
    names = ("exclusiveMinimum", "maximum") if excluded else ("minimum", "exclusiveMaximum")
    return {"type": kinds, names[0]: low, names[1]: low + size}


PATTERNS = st.sampled_from(["^[a-z]{2,4}$", "b+", "^x", "\\d$", "^[^\\w.]+", "\\S.$"]).map(
    lambda pattern: {"type": "string", "pattern": pattern}
)
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


def objects(inner):
    """Schemas of objects, with and without required properties."""

    def made(parts, needed, more, least):
        required = [name for name, given_ in zip(parts, needed, strict=False) if given_]
        limits = {"minProperties": least} if least else {}
        return {"type": "object", "properties": parts, "required": required, "additionalProperties": more, **limits}

    parts = st.dictionaries(NAMES, inner, min_size=1, max_size=3)
    return st.builds(made, parts, st.lists(st.booleans(), min_size=3, max_size=3), st.booleans() | inner, st.integers(0, 1))


def tagged(parts, required):
    """A schema with `oneOf` whose objects have a tag; a discriminator, as in OpenAPI, where the tag is not required."""
    alternatives = [
        {"type": "object", "properties": {"tag": {"const": index}, "value": part}, "required": ["tag"] if required else []}
        for index, part in enumerate(parts)
    ]
    return {"oneOf": alternatives} if required else {"oneOf": alternatives, "discriminator": {"propertyName": "tag"}}


def tuples(parts, items, most):
    """A schema of arrays whose first items have separate schemas."""
    return {"type": ["array", "null"], "prefixItems": parts, "items": items, "maxItems": most}


def joined(first, second, rest):
    """A schema with `allOf` that says two things about the same property."""
    parts = [{"type": "object", "properties": {"a": part}} for part in (first, second)]
    return {"allOf": parts, "properties": {"b": rest}, "required": ["a"]}


# Schemas that hold others, by what they are made of.
FORMS = {
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
    "allOf": lambda inner: st.builds(
        joined, st.sampled_from([{}, {"type": ["integer", "string"]}, {"minimum": 0}, {"maximum": 9}]), LIMITED | inner, inner
    ),
    "maps": lambda inner: st.builds(
        lambda part, least, names: {"type": "object", "additionalProperties": part, "minProperties": least, **names},
        inner,
        st.integers(1, 3),
        st.sampled_from([{}, {"maxProperties": 3}, {"propertyNames": {"enum": ["ab", "ba", "c"]}}, {"properties": {"a": {}}}]),
    ),
    "patternProperties": lambda inner: inner.map(
        lambda part: {"type": "object", "patternProperties": {"^[a-c]+$": part}, "additionalProperties": False}
    ),
    "propertyNames": lambda inner: inner.map(
        lambda part: {"additionalProperties": part, "propertyNames": {"enum": ["a", "b"]}, "maxProperties": 2}
    ),
    "not": lambda inner: inner.map(lambda part: {"not": part}),
    "overlapping oneOf": lambda inner: st.lists(inner, min_size=2, max_size=3).map(lambda parts: {"oneOf": parts}),
    "if": lambda inner: st.builds(
        lambda tag, then, other: {
            "type": "object",
            "properties": {"a": {"enum": [1, 2]}, "b": {}},
            "if": {"properties": {"a": tag}},
            "then": {"properties": {"b": then}},
            "else": {"properties": {"b": other}, "required": ["a"]},
        },
        st.sampled_from([{"const": 1}, {"type": "integer"}, {"maximum": 1}]),
        inner,
        inner,
    ),
    "dependencies": lambda inner: inner.map(
        lambda part: {
            "properties": {"a": part, "b": {}, "c": {}},
            "dependentRequired": {"a": ["c"]},
            "dependentSchemas": {"b": {"properties": {"a": {"type": "string"}}}},
            "type": "object",
        }
    ),
    "contains": lambda inner: st.builds(
        lambda part, other: {"type": "array", "contains": part, "allOf": [{"contains": other}], "maxItems": 3}, inner, inner
    ),
    "multiples": lambda _: st.builds(
        lambda step, low: {"multipleOf": step, "minimum": low}, st.sampled_from([1, 3, 100, 0.5, 12.25]), st.integers(-99, 99)
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


def accepts(automaton, text):
    """Whether a byte automaton accepts a text."""
    return automaton.accepts(text.decode("latin-1"))  # one character for each byte


def row_of(automaton, state):
    """The next state by byte."""
    return {byte: to for low, high, to in automaton.rows[state] for byte in range(low, high + 1)}


def distances(automaton):
    """The least number of bytes from each state to an accepting one."""
    before = [set() for _ in automaton.rows]
    for state, row in enumerate(automaton.rows):
        for _, _, after in row:
            before[after].add(state)
    least, level = [1 << 30] * len(before), {*automaton.accepting}
    for distance in range(len(before)):
        for state in level:
            least[state] = distance
        level = {state for after in level for state in before[after] if least[state] == 1 << 30}
    return least


def texts_of(automaton, count, random):
    """Texts of the language: some random steps, then the shortest way to an end."""
    least = distances(automaton)
    for _ in range(count):
        free, state, text = random.randrange(60), 0, bytearray()
        while state not in automaton.accepting or (free > 0 and random.random() < 0.8):
            row = row_of(automaton, state)
            if not row:
                break
            byte = random.choice([*row]) if free > 0 else min(row, key=lambda byte: least[row[byte]])
            text.append(byte)
            state, free = row[byte], free - 1
        yield bytes(text)


def check_texts(schema, count, seed):
    """Assert that random texts of a schema conform to it, formats included."""
    kind = validator_for(schema, default=Draft202012Validator)
    validator = kind(schema, format_checker=kind.FORMAT_CHECKER)
    for text in texts_of(schema_automaton(schema), count, Random(seed)):
        assert validator.is_valid(json.loads(text)), text
        json.dumps(json.loads(text), ensure_ascii=False).encode()  # no half of a character in UTF-16


SHARED = LEAVES.filter(lambda leaf: "$ref" not in leaf)
REFUSED = "allows no text|is only supported|leads back to itself|not supported|make it smaller|more than"


def with_definitions(schema, shared):
    """The schema with the definitions that it may refer to."""
    return {**schema, "$defs": {"shared": shared, "tree": TREE}} if schema != ANY_OBJECT else schema


def check_with(schema, shared, seed):
    """Assert that random texts of a schema conform to it."""
    whole = with_definitions(schema, shared)
    try:
        schema_automaton(whole)
    except ValueError as error:
        assert re.search(REFUSED, str(error)), error
        assume(False)
    check_texts(whole, 10, seed)


fewer = settings(max_examples=max(4, (settings.default.max_examples if settings.default else 20) // 6))


@given(schema=SCHEMAS, shared=SHARED, seed=st.integers(0, 99))
def test_every_text_conforms(schema, shared, seed):
    check_with(schema, shared, seed)


@pytest.mark.full
@pytest.mark.parametrize("form", FORMS)
@fewer
@given(data=st.data())
def test_every_text_of_each_form_conforms(form, data):
    check_with(data.draw(FORMS[form](LEAVES)), data.draw(SHARED), data.draw(st.integers(0, 99)))


@pytest.mark.full
@pytest.mark.parametrize("form", FORMS)
@fewer
@given(data=st.data())
def test_every_text_of_a_call_conforms_to_the_schema_of_its_function(form, data):
    schemas = data.draw(st.lists(FORMS[form](LEAVES | st.just({"$ref": "#/$defs/shared"})), min_size=1, max_size=2))
    whole = {f"f{index}": with_definitions(schema, data.draw(SHARED)) for index, schema in enumerate(schemas)}
    tools = [Tool(type="function", function=Function(name=name, parameters=each)) for name, each in whole.items()]
    body = ChatRequest.model_construct(tools=tools, tool_choice="required")
    calls, random = call_schema(body), Random(data.draw(st.integers(0, 99)))
    try:
        found = schema_automaton(calls)
    except ValueError as error:
        assert re.search(REFUSED, str(error)), error
        return
    for text in texts_of(found, 10, random):
        call = json.loads(text)
        assert Draft202012Validator(whole[call["name"]], format_checker=FORMAT_CHECKER).is_valid(call["arguments"]), call


def test_properties_have_the_order_of_the_schema_and_others_follow():
    names = ["c", "a", "d", "b"]
    schema = {"type": "object", "properties": {name: {"type": "null"} for name in names}, "required": ["d"]}
    seen = {tuple(json.loads(text)) for text in texts_of(schema_automaton(schema), 200, Random(0))}
    assert any({*names} < {*keys} for keys in seen) or len(seen) > 4
    for keys in seen:
        known = [name for name in keys if name in names]
        assert "d" in keys and [name for name in names if name in keys] == known == [*keys][: len(known)]


# Values whose texts a schema allows if and only if they conform, written in the order of its properties.
SCALARS = [None, True, False, 0, 1, -2, 3.5, 12, 10**15, 2**53 + 1, "", "a", "ab", "abc", "é", "2024-02-29"]
WHOLE = [
    *SCALARS,
    [],
    {},
    *([value] for value in SCALARS),
    *([one, other] for one, other in product(["a", *SCALARS[:9]], repeat=2)),
]
WHOLE += [{"a": value} for value in SCALARS] + [{"b": value} for value in SCALARS]
WHOLE += [{"a": one, "b": other} for one, other in product(SCALARS, repeat=2)] + [
    {"a": 1, "x": 1},
    {"x": 1},
    {"b": 1, "x": "a"},
]
DRAFT_2019 = "https://json-schema.org/draft/2019-09/schema"
AB = {"properties": {"a": {}, "b": {}}}
CLOSED = {"type": "object", "additionalProperties": False}
MAPS = {
    "oneOf": [{"additionalProperties": {"type": "integer"}}, {"additionalProperties": {"type": "string"}}],
    "minProperties": 2,
    "type": "object",
}
EXACT = [
    {},
    {"enum": [1, "a", None, [1], {"a": 1}]},
    {"not": {"enum": [1, "a", None, True]}},
    {"minimum": 1, "exclusiveMaximum": 12},
    {"not": {"minimum": 1, "maximum": 5}},
    {"multipleOf": 2, "not": {"multipleOf": 3}},
    {"type": "string", "not": {"pattern": "^a"}},
    {**AB, "required": ["b"]},
    {**AB, "type": "object", "not": {"required": ["a"]}},
    {**AB, "additionalProperties": {"type": "string"}},
    {**AB, "patternProperties": {"^[ax]": {"type": "integer"}}, "additionalProperties": False},
    {**AB, "minProperties": 2},
    {**AB, "propertyNames": {"maxLength": 1, "not": {"const": "x"}}},
    {**AB, "dependentRequired": {"a": ["b"]}},
    {**AB, "dependentSchemas": {"a": {"properties": {"b": {"type": "string"}}}}},
    {
        **AB,
        "if": {"properties": {"a": {"const": 1}}, "required": ["a"]},
        "then": {"required": ["b"]},
        "else": {"maxProperties": 1},
    },
    {**AB, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
    {**AB, "oneOf": [{"properties": {"a": {"const": 1}}}, {"properties": {"a": {"type": "string"}}}]},
    {**AB, "allOf": [{"properties": {"a": {"type": "integer"}}}, {"properties": {"a": {"minimum": 1}}, "required": ["a"]}]},
    {"oneOf": [{"type": "integer"}, {"minimum": 2}]},
    {"not": {"anyOf": [{"type": "string"}, {"maximum": 3}]}},
    {"items": {"type": ["integer", "string"]}, "minItems": 1},
    {"prefixItems": [{"type": "integer"}], "items": {"type": "string"}, "maxItems": 2},
    {"type": "array", "contains": {"const": 1}},
    {"type": "array", "items": {"enum": [1, 1.0, True, "a", "a", 0]}, "uniqueItems": True},
    {"$ref": "#/$defs/a%20b", "minimum": 1, "$defs": {"a b": {"$anchor": "x", "type": ["integer", "null"]}}},
    {
        "$ref": "urn:y",
        "$defs": {"y": {"$id": "urn:y", "$ref": "#z", "$defs": {"z": {"$anchor": "z", "type": "null"}}}},
    },
    {"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 1, "exclusiveMinimum": True, "const": 12},
    {"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "integer"}], "additionalItems": False},
    {"$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#/definitions/a", "minimum": 9, "definitions": {"a": {}}},
    {"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"const": "a"}, {"type": "null"}]},
    {"$schema": DRAFT_2019, "$ref": "#/$defs/a", "maxLength": 2, "$defs": {"a": {"type": "string", "minLength": 1}}},
    {"$schema": DRAFT_2019, "$ref": "#/$defs/a", "items": [{"const": 1}], "$defs": {"a": {"additionalItems": False}}},
    {"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}, {"maxLength": 2}], "$defs": {"a": {"type": "string"}}},
    {"oneOf": [{**CLOSED, "properties": {"a": {}}}, {**CLOSED, "properties": {"b": {"type": "integer"}}}]},
    {"oneOf": [{"patternProperties": {"^a": {}}, "additionalProperties": {"type": kind}} for kind in ("integer", "string")]},
    {"oneOf": [{"type": "array", "items": {"type": "string"}}, {"type": "array", "items": {"type": "integer"}}]},
    {"not": {**AB, "additionalProperties": {"type": "integer"}}},
    {"not": {**AB, "patternProperties": {"^b": {}}, "additionalProperties": False}, "type": "object"},
    *({"anyOf": [{"type": "null"}, {**MAPS, "propertyNames": {"enum": names}}]} for names in (["a", "b"], ["b", "x"])),
    {"not": {"prefixItems": [{"type": "integer"}], "items": {"type": "string"}}},
    {"contains": {"type": "integer"}, "allOf": [{"contains": {"type": "string"}}], "type": "array"},
    {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1},
    {"nullable": True, "x-a": 1, "format": "unheard-of", "type": "string"},
]


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param(schema, id=json.dumps(schema), marks=pytest.mark.full if number % 2 else ())
        for number, schema in enumerate(EXACT)
    ],
)
def test_exact_keywords_allow_what_conforms_and_nothing_else(schema):
    kind = validator_for(schema, default=Draft202012Validator)
    validator, automaton = kind(schema, format_checker=kind.FORMAT_CHECKER), schema_automaton(schema)
    for value in WHOLE:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
        conforms = validator.is_valid(value)
        assert accepts(automaton, text) == conforms, value


@pytest.mark.full
def test_ordinary_schemas_are_accepted(report):
    accepted = []
    refused = Counter()
    for schema in ORDINARY:
        try:
            schema_automaton(schema)
        except ValueError as error:
            refused[re.split(r"[=\s]", str(error))[0].rpartition(".")[2]] += 1
        else:
            accepted.append(schema)
    causes = ", ".join(f"{name} {count}" for name, count in sorted(refused.items(), key=lambda item: (-item[1], item[0])))
    report(f"{len(accepted)} of {len(ORDINARY)} ordinary JSON schemas are accepted; refused by keyword: {causes}")
    assert len(ORDINARY) == 200 and len(accepted) >= 180
    for index, schema in enumerate(Random(0).sample(accepted, 25)):
        check_texts(schema, 10, index)


JUNK = st.recursive(
    VALUES | st.sampled_from(["string", "object", "#", "#/anyOf/0", "^a", 1.5]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(sorted(_READ)), inner, max_size=4),
    max_leaves=8,
)


@given(schema=st.dictionaries(st.sampled_from(sorted(_READ)), JUNK, min_size=1, max_size=4))
def test_any_schema_is_read_or_refused(schema):
    try:
        schema_automaton(schema)
    except TooManyStates:
        pass
    except ValueError as error:
        assert "json_schema" in str(error)


TEXT = {"type": "string"}
MANY = {
    "properties": {"a": {"type": "null"}, "b": {"type": "array", "items": {"pattern": "^(a|b)*a(a|b){12}$"}, "minItems": 20}}
}


@pytest.mark.parametrize(
    "schema, message",
    [
        ({"properties": {"a": {"pattern": "(?=b)"}}}, "properties.a.pattern='(?=b)' is not supported: look-around"),
        (MANY, "(json_schema.properties.b.items takes most of them)"),
        ({"allOf": 3}, "json_schema.allOf is malformed: 3 is not of type 'array'"),
        ({"anyOf": [TEXT, 3]}, "json_schema.anyOf.1 is malformed: 3 is not"),
        ({"enum": ["a", 1], "type": "null"}, "allows no text"),
        ({"type": "integer", "minimum": 3, "maximum": 2}, "allows no text"),
        ({"type": "integer", "minimum": True}, "json_schema.minimum is malformed: True is not of"),
        ({"maximum": 1e999}, "Out of range float values are not JSON compliant"),
        ({"type": "string", "minLength": -1}, "json_schema.minLength is malformed: -1 is less than the minimum of 0"),
        ({"type": "text"}, "json_schema.type is malformed: 'text' is not"),
        ({"$ref": "#"}, "leads back to itself"),
        ({"$ref": "#/$defs/a"}, "json_schema.$ref='#/$defs/a' does not lead to a part of this document"),
        ({"properties": {"a": {"$ref": "#"}}, "required": ["a"], "type": "object"}, "deeper recursion than is built"),
        ({"properties": {"a": {"unevaluatedItems": False}}}, "json_schema.properties.a.unevaluatedItems is not supported"),
        ({"$dynamicRef": "#a"}, "json_schema.$dynamicRef is not supported: leave it out"),
        ({"type": "array", "items": TEXT, "uniqueItems": True}, "json_schema.uniqueItems is only supported for"),
        ({"multipleOf": 0.1}, "json_schema.multipleOf is only supported up to 2000"),
        ({"pattern": 3}, "json_schema.pattern is malformed: 3 is not of type 'string'"),
        ({"type": ["string", {}]}, "json_schema.type.1 is malformed: {} is not one of"),
        (3, "json_schema must be a JSON schema, got 3"),
    ],
)  # fmt: skip
def test_what_might_not_hold_is_refused_by_its_path(schema, message):
    with pytest.raises(ValueError) as caught:
        schema_automaton(schema)
    assert message in str(caught.value)
