"""What conforms to a merged schema conforms to both of its parts, and nothing conforms to two schemas that are apart."""

from typing import Any

from hypothesis import given, strategies as st
from jsonschema import Draft202012Validator

from dlstep.text.json_schema import apart, merged

SIMPLE = st.sampled_from([0, 1, 1.0, True, None, "a", "b"])
NUMBERS = {
    "type": st.sampled_from(["integer", "number", "string", ["number", "null"]]),
    "minimum": st.integers(-1, 2),
    "exclusiveMaximum": st.integers(1, 3),
    "enum": st.lists(SIMPLE, min_size=1, max_size=3),
    "const": SIMPLE,
}
ARRAYS = {
    "minItems": st.integers(0, 2),
    "maxItems": st.integers(1, 2),
    "items": st.booleans() | st.just({"type": "string"}),
    "prefixItems": st.just([{"type": "string"}]),
}
OBJECTS = {
    "type": st.sampled_from(["object", "array", ["object", "array"]]),
    "required": st.lists(st.sampled_from("abc"), unique=True, max_size=2),
    "additionalProperties": st.booleans(),
    "patternProperties": st.just({"[ab]": {"type": "string"}}),
    "properties": st.dictionaries(st.sampled_from("abc"), st.fixed_dictionaries({}, optional=NUMBERS), max_size=2),
}
GROUPS = [
    (NUMBERS, SIMPLE | st.sampled_from([-1, 2, 2.5, 3])),
    (ARRAYS, st.lists(SIMPLE, max_size=3)),
    (OBJECTS, st.dictionaries(st.sampled_from("abc"), SIMPLE, max_size=3)),
]


def schemas(keywords: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Schemas with at most three of these keywords."""
    names = st.lists(st.sampled_from([*keywords]), max_size=3, unique=True)
    return names.flatmap(lambda chosen: st.fixed_dictionaries({name: keywords[name] for name in chosen}))


def tagged(properties: dict[str, Any], required: list[str], closed: bool) -> dict[str, Any]:
    """A schema of objects with properties, and without others if it is closed."""
    more = {"additionalProperties": False} if closed else {}
    return {"type": "object", "properties": properties, "required": required, **more}


TAGGED = st.builds(
    tagged,
    st.dictionaries(st.sampled_from("ab"), schemas(NUMBERS), min_size=1, max_size=2),
    st.lists(st.sampled_from("ab"), unique=True),
    st.booleans(),
)
PAIRS = st.tuples(TAGGED, TAGGED, st.lists(GROUPS[2][1], min_size=20, max_size=30)) | st.sampled_from(GROUPS).flatmap(
    lambda group: st.tuples(schemas(group[0]), schemas(group[0]), st.lists(group[1], min_size=20, max_size=30))
)


def conforms(value: Any, schema: Any) -> bool:
    """Whether a value conforms to a schema."""
    return Draft202012Validator(schema).is_valid(value)


@given(pair=PAIRS)
def test_a_merged_schema_means_both(pair: tuple[Any, Any, list[Any]]) -> None:
    one, other, values = pair
    try:
        both = merged(one, other, "here")
    except ValueError as error:
        assert str(error).startswith("here: ")
        return
    for value in values:
        assert conforms(value, both) == (conforms(value, one) and conforms(value, other)), value


@given(pair=PAIRS)
def test_nothing_conforms_to_two_schemas_that_are_apart(pair: tuple[Any, Any, list[Any]]) -> None:
    one, other, values = pair
    if apart(one, other, lambda part: part):
        # Where a schema without a type names properties, only objects are written.
        written = {"type": "object", **one} if "properties" in one else one
        for value in values:
            assert not (conforms(value, written) and conforms(value, other)), value


def test_schemas_with_different_types_or_tags_are_apart() -> None:
    def tag(value: object) -> dict[str, Any]:
        return {"properties": {"tag": {"const": value}}, "required": ["tag"]}

    assert apart({"type": "string"}, {"type": ["integer", "null"]}, lambda part: part)
    assert apart(tag("a"), tag("b"), lambda part: part)
    assert not apart({"type": "integer"}, {"type": "number"}, lambda part: part)
    assert not apart(tag("a"), tag("a"), lambda part: part)
    assert not apart(tag("a"), {**tag("b"), "required": []}, lambda part: part)
