"""What conforms to a merged schema conforms to both of its parts, and nothing conforms to two schemas that are apart."""

from typing import Any

from hypothesis import given, strategies as st
from jsonschema import Draft202012Validator

from dlstep.text.json_merge import apart, merged

VALUES = st.recursive(
    st.sampled_from([None, True, 0, 1, 1.0, 2, 2.5, "", "a", "b"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=2),
    max_leaves=4,
)
SIMPLE = st.sampled_from([0, 1, 1.0, True, None, "a", "b"])
FIELDS = {
    "type": st.sampled_from(["integer", "number", "string", "object", "array", ["number", "null"]]),
    "minimum": st.integers(0, 2),
    "exclusiveMaximum": st.integers(1, 3),
    "minItems": st.integers(0, 2),
    "enum": st.lists(SIMPLE, min_size=1, max_size=3),
    "const": SIMPLE,
    "required": st.lists(st.sampled_from("abc"), unique=True, max_size=2),
    "additionalProperties": st.booleans(),
    "items": st.booleans() | st.just({"type": "string"}),
    "prefixItems": st.just([{"type": "string"}]),
    "patternProperties": st.just({"[ab]": {"type": "string"}}),
}
LEAVES = st.fixed_dictionaries({}, optional=FIELDS)
SCHEMAS = st.fixed_dictionaries(
    {}, optional={**FIELDS, "properties": st.dictionaries(st.sampled_from("abc"), LEAVES, max_size=2)}
)


def conforms(value: Any, schema: Any) -> bool:
    """Whether a value conforms to a schema."""
    return Draft202012Validator(schema).is_valid(value)


@given(one=SCHEMAS, other=SCHEMAS, values=st.lists(VALUES, min_size=8, max_size=16))
def test_a_merged_schema_means_both(one: Any, other: Any, values: list[Any]) -> None:
    try:
        both = merged(one, other, "here")
    except ValueError as error:
        assert str(error).startswith("here: ")
        return
    for value in values:
        assert conforms(value, both) == (conforms(value, one) and conforms(value, other)), value


TAGS = st.builds(
    lambda tag, more, required: {"type": "object", "properties": {"a": {"const": tag}, **more}, "required": required},
    SIMPLE,
    st.dictionaries(st.just("b"), LEAVES, max_size=1),
    st.sampled_from([["a"], ["a", "b"], []]),
)


@given(
    one=SCHEMAS | TAGS,
    other=SCHEMAS | TAGS,
    values=st.lists(VALUES, min_size=8, max_size=16),
    tags=st.lists(SIMPLE, max_size=3),
)
def test_nothing_conforms_to_two_schemas_that_are_apart(one: Any, other: Any, values: list[Any], tags: list[Any]) -> None:
    if apart(one, other, lambda part: part):
        # A schema without a type is written as objects where it names properties.
        written = {"type": "object", **one} if "properties" in one and "enum" not in one and "const" not in one else one
        for value in (*values, *({"a": tag} for tag in tags), {}):
            assert not (conforms(value, written) and conforms(value, other)), value


def test_schemas_with_different_types_or_tags_are_apart() -> None:
    def tag(value: object) -> dict[str, Any]:
        return {"properties": {"tag": {"const": value}}, "required": ["tag"]}

    assert apart({"type": "string"}, {"type": ["integer", "null"]}, lambda part: part)
    assert apart(tag("a"), tag("b"), lambda part: part)
    assert not apart({"type": "integer"}, {"type": "number"}, lambda part: part)
    assert not apart(tag("a"), tag("a"), lambda part: part)
    assert not apart(tag("a"), {**tag("b"), "required": []}, lambda part: part)
