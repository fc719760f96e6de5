"""The automata of JSON objects and of texts accept what `json` reads, up to depth and spacing, and nothing else."""

import json
from itertools import product

import pytest
from hypothesis import given, strategies as st

from dlstep.text.dfa import regex, spelled, words
from dlstep.text.json_automaton import Limits, schema_automaton

TEXTS = st.text(max_size=4)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**18) + 1, 10**18 - 1) | st.decimals(-999, 999, places=6).map(float) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


DEPTH = 1 + Limits().depth
AUTOMATON = schema_automaton({"type": "object", "title": "anything"})


def accepts(text, automaton=AUTOMATON):
    return automaton.accepts(text.decode("latin-1"))  # one character for each byte


def nesting(value):
    if isinstance(value, dict):
        return 1 + max(map(nesting, value.values()), default=0)
    return 1 + max(map(nesting, value), default=0) if isinstance(value, list) else 0


@given(value=st.dictionaries(st.text(max_size=3), VALUES, max_size=3), ascii_only=st.booleans(), spaced=st.booleans())
def test_objects_are_accepted_up_to_the_depth(value, ascii_only, spaced):
    separators = (", ", ": ") if spaced else (",", ":")
    text = json.dumps(value, ensure_ascii=ascii_only, separators=separators).encode("utf-8", "surrogatepass")
    well_formed = text.decode("utf-8", "ignore").encode() == text
    assert accepts(text) == (nesting(value) <= DEPTH and well_formed)


ALPHABET = '{}[]":,0123456789-+.eE\\utrfalsn \n\u00e9'


@given(
    text=st.text(alphabet=ALPHABET, max_size=12).map(lambda text: f'{{"a":{text}}}') | st.text(alphabet=ALPHABET, max_size=12)
)
def test_what_is_accepted_is_an_object(text):
    if accepts(text.encode()):
        assert isinstance(json.loads(text), dict)


@given(text=st.text(max_size=3), choices=st.lists(st.text(max_size=3), min_size=1, max_size=4))
def test_texts_of_any_characters_are_spelled_in_utf8(text, choices):
    encoded = text.encode()
    assert accepts(encoded, spelled(words(choices))) == (text in choices)
    assert accepts(encoded, spelled(regex("[^é]*"))) == ("é" not in text)


NULL = {"type": "null"}


@pytest.mark.parametrize(
    "schema, accepted, refused",
    [
        ({"type": "number", "not": {"type": "integer"}}, ["1.5"], ["1", "1.0"]),
        ({"type": ["number", "null"], "not": {"enum": [1]}}, ["1.5", "null"], ["1", "1.0"]),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 3}, ["[1,2]"], ["[]", "[1]"]),
        ({"properties": {"a": {"type": "integer"}}, "required": ["a"], "type": "object"}, ['{"a":1}'], ["{}", '{"b":1}']),
        (
            {"type": "object", "properties": {"a": NULL}, "additionalProperties": NULL, "minProperties": 2},
            ['{"a":null,"b":null}'],
            ["{}", '{"a":null}', '{"b":null,"b":null}'],
        ),
        ({"type": "string", "pattern": '^"$'}, ['"\\""'], ['"""']),
    ],
)
def test_what_a_keyword_forbids_is_refused(schema, accepted, refused):
    automaton = schema_automaton(schema)
    assert all(map(automaton.accepts, accepted)) and not any(map(automaton.accepts, refused))


@pytest.mark.parametrize("recursion", [1, 2, 3])
@pytest.mark.parametrize("sites", ["a", "ab", "abc"])
def test_all_references_to_a_part_count_as_this_part(sites, recursion):
    """However many references lead to a part, and through whatever others, it is nested as deep as the limit, no deeper."""
    others = {f"to {site}": {"$ref": "#/$defs/node"} for site in sites}
    node = {
        "type": "object",
        "properties": {site: {"$ref": f"#/$defs/to {site}"} for site in sites},
        "additionalProperties": False,
    }
    schema = {"$defs": {"node": node, **others}, "$ref": "#/$defs/node"}
    automaton = schema_automaton(schema, Limits(recursion=recursion))
    for depth in range(5):
        for path in product(sites, repeat=depth):
            text = "".join(f'{{"{name}":' for name in path) + "{}" + "}" * depth
            assert automaton.accepts(text) == (depth < recursion), text
