"""The format of calls follows from the chat template; a text that the format does not define is not a call."""

import pytest
from hypothesis import given, strategies as st

from dlstep.models import families
from dlstep.serve.http.tool_calls import GEMMA, HERMES, format_of

QWEN = (
    "{%- if tools %}{{- '# Tools\\n<tools>' }}{%- for tool in tools %}{{- tool | tojson }}{%- endfor %}"
    '{{- "</tools>\\n<tool_call>\\n{\\"name\\": <function-name>, \\"arguments\\": <args-json-object>}\\n</tool_call>" }}'
    "{%- endif %}"
)


def test_the_template_defines_the_format():
    assert format_of(QWEN) is HERMES
    for other in (
        None,
        families.CHATML_TEMPLATE,
        families.LLADA_TEMPLATE,
        families.LLADA2_TEMPLATE,
        QWEN.replace("</tool_call>", ""),
    ):
        assert format_of(other) is None
    assert format_of(QWEN + "<function=") is None and format_of(QWEN + "<arg_key>") is None
    assert format_of("{{ '<|tool_call>call:' + name }}{ {{- '<|\"|>' }} }<tool_call|>") is GEMMA


VALUES = st.sampled_from(["1e999", "-0.10000000000000000000000000001", "9" * 99, '"\\u00e9}"', "[1 , 2]", '{"b":\n{}}', "null"])
SPACE = st.sampled_from(["", " ", "\n\t"])


@given(values=st.lists(VALUES, max_size=3), space=SPACE, first=st.booleans(), more=st.booleans())
def test_the_arguments_are_the_text_of_the_model(values, space, first, more):
    arguments = "{" + ",".join(f'{space}"a{number}":{value}' for number, value in enumerate(values)) + space + "}"
    members = [f'"name"{space}:{space}"add"', f'"arguments"{space}:{space}{arguments}', *(['"id": {"a": [1]}'] if more else [])]
    body = "{" + space + f"{space},{space}".join(members if first else reversed(members)) + space + "}"
    part = HERMES.part(body, ("add",))
    assert (part.name, part.text) == ("add", arguments)


@pytest.mark.parametrize(
    "body, arguments",
    [
        ("call:add{}", "{}"),
        ('call:add{a: 1, b:[<|"|>x:{<|"|>,true],c:{d e:null}}', '{"a": 1,"b":["x:{",true],"c":{"d e":null}}'),
        ("call:add{a:x}", None),
        ("call:add{a:NaN}", None),
        ("call:add{a:1,}", None),
        ('call:add{<|"|>a<|"|>}', None),
        ('call:add{a:<|"|>b}', None),
        ("call:add{a:<b>}", None),
        ("call:other{}", None),
        ("add{}", None),
        ("call:add{a:" + "[" * 100_000 + "}", None),
    ],
)
def test_gemmas_arguments_become_json(body, arguments):
    part = GEMMA.part(body, ("add",))
    assert (part.text if part else None) == arguments
