"""Every text of a schema that is accepted conforms to it; what the compiler would ignore is refused by its path."""

import json
from functools import cache
from random import Random
from typing import Any

import pytest
from hypothesis import given, strategies as st
from jsonschema import Draft202012Validator

from dlstep.core import Spec
from dlstep.core.automaton import Automaton, members
from dlstep.text.constraints import compiled
from dlstep.text.json_schema import FORMATS, check_schema

BYTES = Spec(256, (257,), 258, pieces=(*[bytes([byte]) for byte in range(256)], b"", b""))
NAMES = st.sampled_from(["a", "b", "é", "long name", "$ref", "type"])
VALUES = st.none() | st.booleans() | st.integers(-9, 99) | st.text(max_size=4) | st.lists(st.integers(0, 9), max_size=2)
SIZES = st.integers(0, 3)
LEAVES = st.one_of(
    st.sampled_from([{"type": name} for name in ("string", "integer", "number", "boolean", "null")]),
    st.sampled_from([{"type": ["string", "null"]}, {"type": ["integer", "boolean"]}, {"$ref": "#/$defs/shared"}]),
    st.sampled_from(FORMATS).map(lambda name: {"type": "string", "format": name}),
    st.lists(VALUES, min_size=1, max_size=3).map(lambda values: {"enum": values}),
    VALUES.map(lambda value: {"const": value}),
    st.builds(lambda low, more: {"type": "string", "minLength": low, "maxLength": low + more}, SIZES, SIZES),
)


def objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Schemas of objects, with and without required properties."""

    def made(parts: dict[str, Any], needed: list[bool], more: bool) -> dict[str, Any]:
        required = [name for name, given_ in zip(parts, needed, strict=False) if given_]
        return {"type": "object", "properties": parts, "required": required, "additionalProperties": more}

    parts = st.dictionaries(NAMES, inner, min_size=1, max_size=3)
    return st.builds(made, parts, st.lists(st.booleans(), min_size=3, max_size=3), st.booleans())


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Schemas that hold others."""
    return st.one_of(
        objects(inner),
        st.builds(
            lambda items, low, more: {"type": "array", "items": items, "minItems": low, "maxItems": low + more},
            inner,
            SIZES,
            SIZES,
        ),
        st.lists(inner, min_size=1, max_size=2).map(lambda parts: {"type": "array", "prefixItems": parts, "items": False}),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"anyOf": parts}),
    )


ANY_OBJECT = {"type": "object"}
SCHEMAS = st.recursive(LEAVES, containers, max_leaves=4) | st.just(ANY_OBJECT)


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


@given(
    schema=SCHEMAS,
    shared=LEAVES.filter(lambda leaf: "$ref" not in leaf and leaf != {"type": "object"}),
    seed=st.integers(0, 99),
)
def test_every_text_conforms(schema: dict[str, Any], shared: dict[str, Any], seed: int) -> None:
    whole = {**schema, "$defs": {"shared": shared}} if schema != ANY_OBJECT else schema
    automaton, validator, random = compiled("json_schema", json.dumps(whole), BYTES), Draft202012Validator(whole), Random(seed)
    for _ in range(10):
        text = text_of(automaton, random)
        assert validator.is_valid(json.loads(text)), text


TEXT, INTEGER = {"type": "string"}, {"type": "integer"}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "object", "minProperties": 1}, "json_schema.minProperties is not supported: leave it out"),
        ({"type": "object", "patternProperties": {}}, "json_schema.patternProperties is not supported: leave it out"),
        ({"properties": {"a": INTEGER}, "required": ["b"]}, "must list names of json_schema.properties"),
        ({"properties": {'a"': INTEGER}}, "needs escapes in JSON"),
        ({"properties": {"a": {"type": "string", "pattern": "b"}}}, "json_schema.properties.a.pattern is not supported"),
        ({"allOf": [TEXT]}, "json_schema needs one of"),
        ({"oneOf": [TEXT, INTEGER]}, "json_schema needs one of"),
        ({"anyOf": [TEXT], "type": "integer"}, "json_schema.type is not supported beside anyOf"),
        ({"anyOf": [TEXT, 3]}, "json_schema.anyOf[1] must be a JSON schema, got 3"),
        ({"enum": ["a", 1], "type": "string"}, "1 is not of type 'string'"),
        ({"type": "integer", "minimum": 3}, "json_schema.minimum is not supported"),
        ({"type": "string", "format": "email"}, "json_schema.format='email' is not supported: give one of date, date-time"),
        ({"type": "string", "format": "date", "minLength": 3}, "json_schema.minLength is not supported beside format"),
        ({"type": ["object", "null"]}, "give anyOf with a schema for each type"),
        ({"type": "array", "items": False}, "json_schema.items must be a JSON schema"),
        ({"type": "object", "additionalProperties": False}, "needs properties"),
        ({}, "json_schema needs one of"),
    ],
)  # fmt: skip
def test_what_might_not_hold_is_refused_by_its_path(schema: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        check_schema(schema)
    assert message in str(caught.value)
