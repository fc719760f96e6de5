"""JSON inside of a client's text has the limits of a body: whatever it contains is a 400, or the error of a line of a batch."""

import pytest
from hypothesis import given, settings, strategies as st

from dlstep.batch.engine import BatchEngine

from ....helpers.serving import CHAT, COMPLETIONS, served, shadow_engine
from .conftest import GOOD, GOOD_CHAT, error_of

TOKENIZE = "/tokenize"
WRITING = (
    "{% for m in messages if m.role != 'lost' %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function }}"
    "{% endfor %}{% endfor %}"
)
DEEP = st.tuples(st.sampled_from(["[", '{"a":', '[{"a":[']), st.integers(50, 3000)).map(lambda nest: nest[0] * nest[1])
HALVES = st.sampled_from(["\\ud800", "\\udc00", "\\ud800\\u0041", "\\uD83D"]).map(lambda half: f'{{"a":"{half}","{half}":1}}')
NUMBERS = st.sampled_from(["NaN", "-Infinity", "Infinity", "1e999", "9" * 5000, "0." + "1" * 5000, "01", "-"])
OTHERS = st.sampled_from(
    ["", " ", "[1]", "5", '"{}"', "null", "{", "{'a':1}", '{"a":1} x', '{"a":1,"a":2}', "\x00", "{}\ufeff"]
)
TEXTS = DEEP | HALVES | NUMBERS | NUMBERS.map(lambda number: f'{{"a":{number}}}') | OTHERS | st.text(max_size=9)


def calls(text):
    """A history with a call whose arguments are this text."""
    call = {"id": "1", "type": "function", "function": {"name": "add", "arguments": text}}
    return [{"role": "user", "content": "x"}, {"role": "assistant", "content": None, "tool_calls": [call]}]


def bodies(text):
    """Bodies with this text in each place that is decoded again: path, body, and the field that is named."""
    arguments = "messages.1.tool_calls.0.function.arguments"
    return [
        (CHAT, GOOD_CHAT | {"messages": calls(text)}, arguments),
        (TOKENIZE, {"messages": calls(text)}, arguments),
        (COMPLETIONS, GOOD | {"structured_outputs": {"json": text}}, "structured_outputs"),
        (CHAT, GOOD_CHAT | {"structured_outputs": {"json": text}}, "structured_outputs"),
    ]


@pytest.fixture(scope="module")
def shadow():
    """A server whose template writes the arguments of calls."""
    with served(template=WRITING) as server:
        yield server


@pytest.fixture(scope="module")
def batch():
    """The engine of a batch without a network."""
    return BatchEngine(shadow_engine(), template=WRITING)


@pytest.mark.full
@settings(max_examples=20)
@given(text=TEXTS)
def test_no_text_that_is_decoded_twice_is_a_fault(http, batch, text):
    check(http, batch, text)


@pytest.mark.parametrize("text", ["[" * 1500, '{"a":' * 1500, '{"a": ' + "[" * 150 + "]" * 150 + "}"])
def test_no_depth_is_a_fault(http, batch, text):
    check(http, batch, text)  # Hypothesis raises the limit of recursion


def test_a_message_that_the_template_drops_is_refused(shadow, batch):
    messages = [{"role": role, "content": [{"type": "text", "text": role}]} for role in ("developer", "lost", "user")]
    reply, body = shadow.post(TOKENIZE, status=400, messages=messages), GOOD_CHAT | {"messages": messages}
    error = reply["error"]
    assert (error["param"], error["code"]) == ("messages.1", "message_dropped") and "'lost'" in error["message"]
    assert shadow.post(CHAT, status=400, **body) == reply
    batch.add(0, "0" * 32, {"method": "POST", "url": CHAT, "body": body})
    assert batch.step()[0].body == reply
    assert shadow.post(CHAT, **body | {"messages": messages[::2]})


def check(http, batch, text):
    """Each body with this text is answered or refused by the name of its field, also in a batch."""
    for path, body, param in bodies(text):
        response = http.post(path, json=body)
        assert response.status_code in (200, 400), (path, text[:80], response.text)
        theirs = response.json()
        if response.status_code == 400:
            named = error_of(response)["param"]
            assert named.startswith(param) or named in (param.split(".")[0], "max_tokens"), theirs
        if path != TOKENIZE:
            batch.add(0, "0" * 32, {"method": "POST", "url": path, "body": body})
            answered = batch.step()
            while batch.live:
                answered += batch.step()
            assert answered[0].status == response.status_code, (path, text[:80], answered)
            assert response.status_code == 200 or answered[0].body == theirs


def test_a_history_is_rendered_with_its_arguments_as_objects(shadow):
    empty, braces = (shadow.post(TOKENIZE, messages=calls(text))["count"] for text in ("", "{}"))
    assert empty == braces
    error = shadow.post(TOKENIZE, status=400, messages=calls("[1]"))["error"]
    assert (error["param"], error["code"]) == ("messages.1.tool_calls.0.function.arguments", "invalid_type")
