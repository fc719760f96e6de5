"""The format of calls follows from the chat template; a text that the format does not define is not a call."""

import pytest

from dlstep.models import templates
from dlstep.serve.http.call_formats import GEMMA, HERMES, format_of

QWEN = (
    "{%- if tools %}{{- '# Tools\\n<tools>' }}{%- for tool in tools %}{{- tool | tojson }}{%- endfor %}"
    '{{- "</tools>\\n<tool_call>\\n{\\"name\\": <function-name>, \\"arguments\\": <args-json-object>}\\n</tool_call>" }}'
    "{%- endif %}"
)


def test_the_template_defines_the_format() -> None:
    assert format_of(QWEN) is HERMES
    for other in (None, templates.CHATML, templates.LLADA, templates.LLADA2, QWEN.replace("</tool_call>", "")):
        assert format_of(other) is None
    assert format_of(QWEN + "<function=") is None and format_of(QWEN + "<arg_key>") is None
    assert format_of("{{ '<|tool_call>call:' + name }}{ {{- '<|\"|>' }} }<tool_call|>") is GEMMA


@pytest.mark.parametrize(
    ("body", "arguments"),
    [
        ("call:add{}", "{}"),
        ('call:add{a: 1, b:[<|"|>x:{<|"|>,true],c:{d e:null}}', '{"a": 1, "b": ["x:{", true], "c": {"d e": null}}'),
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
def test_gemmas_arguments_become_json(body: str, arguments: str | None) -> None:
    part = GEMMA.part(body, ("add",))
    assert (part.text if part else None) == arguments
