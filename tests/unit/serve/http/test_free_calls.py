"""With tool_choice "auto", OpenAI's client gets text, reasoning and calls apart."""

import json

import pytest

from training.tokenizer import EOS_ID, build_tokenizer

from ....helpers.serving import served, shadow_engine, tiny_llm

TEMPLATE = """{%- for tool in tools or [] %}{{ tool.function.name }} {% endfor %}
{%- if tools %}Call with <tool_call>{"name": <name>, "arguments": <arguments>}</tool_call>.
{% endif %}
{%- for message in messages %}
    {%- if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>{% endif %}
    {{- message.content or "" }}
    {%- for call in message.tool_calls or [] %}
        {{- '<tool_call>{"name": "' + call.function.name + '", "arguments": ' }}
        {{- (call.function.arguments | tojson) + '}</tool_call>' }}
    {%- endfor %}
{% endfor %}
{%- if thinking %}Think first.{% endif %}
{%- if messages[-1].content == "Think." or enable_thinking %}<think>
{% endif %}"""
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in ("add", "stop")]
CALLS = [("add", {"a": [53, 39], "b": "}</tool_call>"}), ("stop", {})]
TAGGED = [f"<tool_call>\n{json.dumps({'name': name, 'arguments': given})}\n</tool_call>" for name, given in CALLS]
TAGS = "\n".join(TAGGED)


@pytest.fixture(scope="module")
def client():
    with served(tiny_llm().engine, template=TEMPLATE) as server:
        yield server.client()


def asked(text, end=True, turn="How many?", tokenizer=None, **more):
    """A body whose answer is `text`, pinned, since the embedded model was not trained to call functions."""
    ids = [*(tokenizer or build_tokenizer()).encode(text, add_special_tokens=False), *([EOS_ID] if end else [])]
    pinned = {str(offset): token for offset, token in enumerate(ids)}
    body = {"model": "tiny-bd", "messages": [{"role": "user", "content": turn}], "max_tokens": len(ids), "tools": TOOLS}
    return body | {"extra_body": {"dlstep": {"pinned": pinned}}} | more


def whole(client, body):
    """Reasoning, text, calls and finish reason of each choice."""
    found = []
    for choice in client.chat.completions.create(**body).choices:
        calls = [(call.function.name, json.loads(call.function.arguments)) for call in choice.message.tool_calls or ()]
        assert choice.message.content is not None or calls
        reasoning = (choice.message.model_extra or {}).get("reasoning_content", "")
        found.append((reasoning, choice.message.content or "", calls, choice.finish_reason))
    return found


@pytest.mark.parametrize(
    "text, body, expected",
    [
        ("<think>\nI add.\n</think>\n\nLet me see." + TAGS, {}, ("I add.", "Let me see.", CALLS, "tool_calls")),
        (TAGS, {"tool_choice": "auto"}, ("", "", CALLS, "tool_calls")),
        (TAGS, {"parallel_tool_calls": False}, ("", "", CALLS[:1], "tool_calls")),
        (TAGS, {"n": 2, "temperature": 1.0}, ("", "", CALLS, "tool_calls")),
        (TAGS, {"end": False}, ("", "", CALLS, "length")),
        ("92 shells.", {}, ("", "92 shells.", [], "stop")),
        (TAGS[:-1], {}, ("", TAGGED[1][:-1], CALLS[:1], "tool_calls")),
        ("I add.</think>" + TAGS, {"turn": "Think."}, ("I add.", "", CALLS, "tool_calls")),
    ],
)
def test_the_parts_of_an_answer_are_apart(client, text, body, expected):
    body = asked(text, **body)
    assert whole(client, body) == [expected] * body.get("n", 1)


NAMED = {"type": "function", "function": {"name": "add"}}
CALL, OBJECT = '{"name": "add", "arguments": {"a": [1]}}', '{"a": [1]}'
OPENED, ON = {"turn": "Think."}, {"extra_body": {"chat_template_kwargs": {"thinking": True}}}


@pytest.mark.full
@pytest.mark.parametrize("body, begin", [({}, ""), (OPENED, "I</think>\n\n"), (OPENED, "</think>"), (ON, "<think>I</think>")])
@pytest.mark.parametrize(
    "more, answer, expected",
    [
        ({"tool_choice": NAMED}, OBJECT, ("", [("add", {"a": [1]})], "stop")),
        ({"tool_choice": "required"}, CALL, ("", [("add", {"a": [1]})], "tool_calls")),
        ({"tools": None, "response_format": {"type": "json_object"}}, OBJECT, (OBJECT, [], "stop")),
    ],
)
def test_a_constrained_answer_may_think_first(client, body, begin, more, answer, expected):
    asked_for = asked(begin + answer, **{name: value for name, value in body.items() if name != "extra_body"}, **more)
    free = asked_for | {"extra_body": dict(body.get("extra_body", {})), "max_tokens": 120}
    asked_for["extra_body"] |= body.get("extra_body", {})
    assert whole(client, asked_for) == [("I" if "I" in begin else "", *expected)]
    # The model was not trained to think, and never ends; `end_reserve` keeps twice the least that a call takes.
    ((reasoning, content, calls, _),) = whole(client, free)
    assert bool(reasoning) == bool(begin) and isinstance(calls[0][1] if calls else json.loads(content), dict)


def test_marks_of_a_constrained_answer_may_be_special_tokens():
    engine = shadow_engine(max_model_len=256, special=("<think>", "</think>", "<tool_call>", "</tool_call>"))
    with served(engine, template=TEMPLATE) as server:
        client = server.client()
        for turn, text in (("Think.", f"I</think>\n\n{CALL}"), ("How many?", f"<think>I</think>{CALL}")):
            body = asked(text, False, turn, engine.tokenizer, tool_choice="required", model="shadow")
            body["extra_body"] |= ON["extra_body"]
            assert whole(client, body) == [("I", "", [("add", {"a": [1]})], "tool_calls")]
