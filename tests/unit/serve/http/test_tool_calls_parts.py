"""Free answers are split into reasoning, text and calls, the same ones however the answer is cut."""

import json
from itertools import pairwise
from time import perf_counter

import pytest
from hypothesis import example, given, strategies as st

from dlstep.serve.http.tool_calls import GEMMA, HERMES, AnswerReader

FUNCTIONS = ("add", "stop.now")


def joined(parts):
    """Reasoning, text, and calls of all parts."""
    text, reasoning = ("".join([part.text for part in parts if part.kind == kind]) for kind in ("text", "reasoning"))
    return reasoning, text, [(part.name, json.loads(part.text)) for part in parts if part.kind == "call"]


def read(*pieces, form=HERMES, thinking=False, most=None):
    reader = AnswerReader(form, FUNCTIONS, mode="reasoning" if thinking else "start", most=most)
    parts = [part for piece in pieces for part in reader.push(piece)] + reader.push("", end=True)
    assert reader.calls == len([part for part in parts if part.kind == "call"])
    return joined(parts)


def cut_up(text, cuts):
    """The pieces of a text between these places."""
    return [text[begin:end] for begin, end in pairwise([0, *sorted(cuts), len(text)])]


def call(name, arguments, space=""):
    body = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>{space}{body}{space}</tool_call>"


def gemma_value(value):
    """A value as Gemma's template writes it."""
    if isinstance(value, str):
        return f'<|"|>{value}<|"|>'
    if isinstance(value, list):
        return f"[{','.join([gemma_value(each) for each in value])}]"
    if isinstance(value, dict):
        return "{" + ",".join([f"{name}:{gemma_value(each)}" for name, each in value.items()]) + "}"
    return json.dumps(value)


def gemma_call(name, arguments):
    return f"<|tool_call>call:{name}{gemma_value(arguments)}<tool_call|>"


SPACE = st.sampled_from(["", "\n", " \n"])
TEXT = st.text(alphabet='ab<>/{"}\\ \n', max_size=8) | st.sampled_from(
    ["<tool_call", "<think>", "</think>", "<tool_call>{", '"}']
)
ARGUMENTS = st.dictionaries(st.text(max_size=3), st.text(max_size=5) | st.lists(st.integers(), max_size=2), max_size=3)
CALL = st.builds(call, st.sampled_from(FUNCTIONS), ARGUMENTS | st.just({"a": "</tool_call>{"}), SPACE)
WRONG = st.builds(call, st.sampled_from(["other", "", 3, None]), ARGUMENTS | st.none(), SPACE)


@given(
    pieces=st.lists(TEXT | CALL | WRONG | SPACE, max_size=6),
    begin=st.sampled_from(["", "<think>", " \n<think>\nso </think>\n\n", "</think>"]),
    thinking=st.booleans(),
    cuts=st.lists(st.integers(0, 200), max_size=8),
)
@example(pieces=["<tool_call>", call("add", {})], begin="", thinking=False, cuts=[5, 11, 12, 13])
@example(pieces=["<tool_call>  ", " ", '{"name"'], begin="", thinking=False, cuts=[12, 13])
def test_pieces_of_any_size_give_the_parts_of_the_whole(pieces, begin, thinking, cuts):
    text = begin + "".join(pieces)
    whole = read(text, thinking=thinking)
    assert read(*cut_up(text, cuts), thinking=thinking) == whole == read(*text, thinking=thinking)


@given(
    calls=st.lists(st.tuples(st.sampled_from(FUNCTIONS), ARGUMENTS), min_size=1, max_size=3),
    space=SPACE,
    text=st.sampled_from(["", "I look."]),
)
def test_calls_are_those_that_the_model_wrote(calls, space, text):
    answer = (
        f"<think>\nwhy {space}</think>{space}{text}" + "".join([space + call(*each, space=space) for each in calls]) + space
    )
    assert read(answer) == ("why", text, calls)
    assert read(answer, most=1) == ("why", text, calls[:1])


GEMMA_VALUES = st.recursive(
    st.text(alphabet='ab<|"{}[],:>\n', max_size=6).filter(lambda text: not (text.endswith(tuple('<|"')) or '<|"|>' in text))
    | st.sampled_from([1, -2.5, True, None, "<tool_call|>", "é"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["x", "y z"]), inner, max_size=2),
    max_leaves=4,
)
GEMMA_ARGUMENTS = st.dictionaries(st.sampled_from(["a", "b_1", "é"]), GEMMA_VALUES, max_size=3)


@given(
    calls=st.lists(st.tuples(st.sampled_from(FUNCTIONS), GEMMA_ARGUMENTS), min_size=1, max_size=3),
    wrong=st.sampled_from(["", "<|tool_call>", "<|tool_call>call:other{a:1}<tool_call|>", '<|tool_call>call:add{a:<|"'])
    | st.sampled_from(
        ["<|tool_call>call:add{a:b}<tool_call|>", "<|tool_call>call:add{a:1}}<tool_call|>", "<|tool_call>call:add"]
    ),
    cuts=st.lists(st.integers(0, 200), max_size=8),
)
def test_calls_in_gemmas_format_are_those_that_the_model_wrote(calls, wrong, cuts):
    answer = "<|channel>thought\nwhy\n<channel|>Text." + "".join([gemma_call(*each) for each in calls])
    assert read(*cut_up(answer, cuts), form=GEMMA) == ("why", "Text.", calls) == read(*answer, form=GEMMA)
    assert read(answer + wrong, form=GEMMA) == ("why", "Text." + wrong, calls) == read(*answer, *wrong, form=GEMMA)


@pytest.mark.parametrize(
    "wrong",
    [
        '<tool_call>{"name": "add", "arguments": {"a": 1}',
        '<tool_call>{"name": "add", "arguments": {"a": 1}</tool_call>',
        '<tool_call>{"name": "add", "arguments": {"a": NaN}}</tool_call>',
        '<tool_call>{"name": "add", "arguments": [1]}</tool_call>',
        '<tool_call>{"name": "add"}</tool_call>',
        '<tool_call>{"name": ["add"], "arguments": {}}</tool_call>',
        '<tool_call>{"name": "add", "arguments": {}} and</tool_call>',
        '<tool_call>["add"]</tool_call>',
        "<tool_call>add(1)</tool_call>",
        "<tool_call>" + '{"a":' * 30_000 + "</tool_call>",
        '<tool_call>{"name": "add", "arguments": {"a": ' + "9" * 5000 + "}}</tool_call>",
        "<tool_call>",
    ],
)
def test_a_malformed_call_stays_text_and_later_ones_are_read(wrong):
    assert read(wrong) == ("", wrong, [])
    assert read(wrong, call("add", {"b": 2})) == ("", wrong, [("add", {"b": 2})])
    assert read(call("add", {}), wrong) == ("", wrong, [("add", {})])


def test_reasoning_may_begin_in_the_prompt_and_never_end():
    assert read("\nwhy\n</think>\n\nso", thinking=True) == ("why", "so", [])
    assert read("<think>why ", call("add", {})) == ("why " + call("add", {}), "", [])
    assert read("so <think>why</think>") == ("", "so <think>why</think>", [])
    assert read("<think>why</t") == ("why</t", "", [])


@pytest.mark.parametrize(
    "unit",
    [
        "<tool_call>", "<tool_call>{", '<tool_call>{"', '<tool_call>{"\\"', '<tool_call>{"a": "', "<tool_call>{" + '"\\',
        "<|tool_call>", "<|tool_call>call:add{", '<|tool_call>call:add{a:<|"|>',
    ],
)  # fmt: skip
def test_repeated_tags_are_read_in_linear_time(unit):
    text = unit * 5_000
    begin = perf_counter()
    assert read(text, form=GEMMA if unit.startswith(GEMMA.call) else HERMES) == ("", text, [])
    assert perf_counter() - begin < 10
