"""Calls of functions are read from any pieces of an answer."""

import json

import pytest
from hypothesis import given, strategies as st
from pydantic import TypeAdapter

from dlstep.serve.http.schema import ChatRequest, Tool
from dlstep.serve.http.tool_calls import CallReader, Function, ToolChoice, call_schema, callable_freely, called_function
from dlstep.text.json_automaton import schema_automaton

from .test_tool_calls_parts import cut_up

CHOICE = TypeAdapter(ToolChoice)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def tool(name, parameters=None):
    return Tool(type="function", function=Function(name=name, parameters=parameters))


TOOLS = [tool("add", {"type": "object", "properties": {"a": {"type": "integer"}}}), tool("stop")]


def body(tools, choice=None):
    """A body with these functions and this choice."""
    return ChatRequest.model_construct(tools=[*tools], tool_choice=choice)


@given(
    arguments=st.dictionaries(st.text(max_size=3), VALUES, max_size=3),
    name=st.sampled_from(["add", "stop.now", "a-b_c"]),
    named=st.booleans(),
    spaced=st.booleans(),
    cuts=st.lists(st.integers(0, 60), max_size=6) | st.just([*range(200)]),
)
def test_pieces_of_any_size_give_the_call_of_the_whole(arguments, name, named, spaced, cuts):
    separators = (", ", ": ") if spaced else (",", ":")
    inner = json.dumps(arguments, separators=separators)
    text = inner if named else json.dumps({"name": name, "arguments": arguments}, separators=separators)
    reader = CallReader(name if named else "")
    parts = [reader.push(piece) for piece in cut_up(text, cuts)]
    assert [part.name for part in parts if part.name] == [name] and "".join([part.text for part in parts]) == inner
    assert reader.complete


def chosen(name):
    """The choice of a function."""
    return CHOICE.validate_python({"type": "function", "function": {"name": name}})


@pytest.mark.parametrize(
    "choice, name, free",
    [
        (None, None, True),
        ("auto", None, True),
        ("none", None, False),
        ("required", "", False),
        (chosen("stop"), "stop", False),
    ],
)
def test_the_choice_selects_the_functions_and_none_leaves_all_free(choice, name, free):
    assert called_function(body(TOOLS, choice)) == name and called_function(body([])) is None
    assert callable_freely(body(TOOLS, choice)) == (("add", "stop") if free else ()) and not callable_freely(body([], choice))


def test_the_schema_is_that_of_the_arguments_or_of_any_call():
    add, stop = chosen("add"), chosen("stop")
    assert call_schema(body(TOOLS, add)) == {**(TOOLS[0].function.parameters or {}), "additionalProperties": False}
    assert call_schema(body(TOOLS, stop)) == {"type": "object", "properties": {}, "additionalProperties": False}
    calls = call_schema(body(TOOLS, "required"))["anyOf"]
    assert [call["properties"]["name"] for call in calls] == [{"const": "add"}, {"const": "stop"}]
    assert call_schema(body(TOOLS[:1], "required"))["properties"]["arguments"]["properties"] == {"a": {"type": "integer"}}


@pytest.mark.parametrize(
    "parameters, open_ended",
    [
        ({"properties": {"a": {"type": "integer"}}}, False),
        ({"properties": {"a": {"type": "integer"}}, "additionalProperties": True}, True),
        ({"properties": {"a": {"type": "integer"}}, "patternProperties": {"^x": {}}}, True),
        ({"properties": {"a": {"type": "integer"}}, "allOf": [{"properties": {"x": {"type": "integer"}}}]}, True),
        ({"properties": {"a": {"type": "integer"}}, "required": ["a", "x"]}, True),
        ({}, True),
    ],
)
def test_calls_have_the_arguments_that_the_function_names(parameters, open_ended):
    accepts = schema_automaton(call_schema(body([tool("f", {"type": "object", **parameters})], "required"))).accepts
    assert accepts('{"name":"f","arguments":{"a":1}}') == ("required" not in parameters)
    assert accepts('{"name":"f","arguments":{"a":1,"x":1}}') == open_ended
    assert not accepts('{"name":"f","arguments":{"a":1},"x":1}')


@pytest.mark.parametrize("draft", ["http://json-schema.org/draft-04/schema#", "http://json-schema.org/draft-07/schema#", ""])
def test_references_of_parameters_lead_to_their_own_definitions(draft):
    tools = [tool(name, {"$schema": draft, "$ref": "#/definitions/a", "definitions": {"a": {"enum": [name]}}}) for name in "fg"]
    calls = call_schema(body(tools, "required"))
    assert schema_automaton(calls).accepts('{"name":"g","arguments":"g"}')
