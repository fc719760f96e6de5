"""Conversations: which template renders them, and what is refused."""

import json
from dataclasses import replace

import pytest
from hypothesis import event, given, strategies as st
from jinja2 import TemplateError

from dlstep import LLM, SamplingParams
from dlstep.cli import main
from dlstep.core import Refused
from dlstep.models import FAMILIES
from dlstep.text.chat import chat_prompt, render, template_variables
from training.tokenizer import EOS_ID, build_tokenizer

from ...helpers.refusals import refused
from ...helpers.shadow_llm import make_llm

NAMED = (
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}<eos>{% endfor %}{% if add_generation_prompt %}bot:{% endif %}"
)


HELLO = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello"}]


def told(text):
    return [{"role": "user", "content": text}]


@pytest.fixture
def llm():
    """A model without a template in its tokenizer, whose family has one."""
    return LLM.of(replace(make_llm().engine, chat_template=NAMED))


def test_a_conversation_is_rendered_for_an_answer(llm):
    tokens = llm.chat_prompt(HELLO)
    assert llm.engine.tokenizer.decode(list(tokens)) == "system: Be kind.<eos>user: Hello<eos>bot:"
    assert tokens.count(EOS_ID) == 2


def test_special_tokens_are_those_of_the_template():
    from tokenizers.processors import TemplateProcessing

    tokenizer = build_tokenizer()
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="<eos> $A <eos>", special_tokens=[("<eos>", EOS_ID)])
    assert tokenizer.encode("Hello").count(EOS_ID) == 2
    assert chat_prompt(tokenizer, NAMED, HELLO).count(EOS_ID) == 2


def test_chat_generates_from_rendered_conversations(llm):
    params = SamplingParams(max_tokens=12, ignore_eos=True)
    one = llm.chat(HELLO, params)
    both = llm.chat([told("a"), HELLO], params)
    assert one == both[1:] == llm.generate([llm.chat_prompt(HELLO)], params)
    assert one[0].prompt == llm.chat_prompt(HELLO)
    assert "".join(llm.stream(llm.chat_prompt(HELLO), params)) == one[0].text


def test_the_embedded_models_answer_the_last_message_of_a_conversation():
    llm, question = LLM("tiny-bd"), "Max has 53 shells. Later Max buys 39 more. How many shells does Max have?"
    (plain,) = llm.generate(question)
    before = [{"role": "system", "content": "Be kind."}, *told("Who are you?"), {"role": "assistant", "content": "Max."}]
    for conversation in (told(question), told(f"{question}\n"), [*before, *told(question)]):
        (answer,) = llm.chat(conversation)
        assert answer.token_ids == plain.token_ids and "53+39=92" in answer.text


THINKS = "{# drops messages #}{{ messages[-1].content }}{% if enable_thinking %} yes{% endif %}"


def test_variables_of_the_template_are_set(llm, capsys, monkeypatch):
    engine = replace(llm.engine, chat_template=THINKS)
    monkeypatch.setattr("dlstep.llm.load_engine", lambda config: engine)
    params, thinking = SamplingParams(max_tokens=4), {"enable_thinking": True}
    (output,) = LLM.of(engine).chat(HELLO, params, chat_template_kwargs=thinking)
    assert engine.tokenizer.decode(output.prompt) == "Hello yes"
    assert (
        main(["generate", "Hello", "--chat", "--json", "--max_tokens", "4", "--chat_template_kwargs", json.dumps(thinking)])
        == 0
    )
    assert json.loads(capsys.readouterr().out)[0]["prompt"] == list(output.prompt)
    with refused("chat_template_kwargs", "unknown_name"):
        LLM.of(engine).chat_prompt(HELLO, {"thinking": True})
    assert main(["generate", "Hello", "--chat", "--chat_template_kwargs", '{"thinking": true}']) == 2
    assert "'thinking': the variables of this chat template are enable_thinking" in capsys.readouterr().err


@pytest.mark.parametrize("last", ["The answer is", "Answer: ", "  def f(x):\n    ", "<|im_end|>\nso "])
@pytest.mark.parametrize("family", ["sdar", "llada", "llada2"])
def test_the_last_turn_is_continued(family, last):
    template = FAMILIES[family].chat_template
    assert template is not None
    text = render(build_tokenizer(), template, [*told("And now?"), {"role": "assistant", "content": last}], False, True)
    assert text.endswith(last.strip() if family == "llada" else last)


def test_a_begun_message_is_continued(llm):
    begun, params = [*HELLO, {"role": "assistant", "content": "I am"}], SamplingParams(max_tokens=8)
    ways = {"add_generation_prompt": False, "continue_final_message": True}
    text = "system: Be kind.<eos>user: Hello<eos>assistant: I am"
    assert llm.engine.tokenizer.decode(list(llm.chat_prompt(begun, **ways))) == text
    assert llm.engine.tokenizer.decode(list(llm.chat_prompt(begun, add_generation_prompt=False))) == text + "<eos>"
    assert llm.chat(begun, params, **ways) == llm.generate([llm.chat_prompt(begun, **ways)], params)
    with refused("continue_final_message", "invalid_value"):
        llm.chat(begun, continue_final_message=True)


def test_a_template_sees_tools_and_no_field_that_is_none():
    template = "{% generation %}{{ tools }}{% endgeneration %}{{ messages }}"
    messages = [{"role": "user", "content": "a", "name": None}]
    text = render(build_tokenizer(), template, messages, tools=[{"type": "function"}])
    assert text == "[{'type': 'function'}][{'role': 'user', 'content': 'a'}]"
    assert template_variables(template + "{{ x }}", {"x": 1}) == {"x": 1}


READS = {
    "enable_thinking": "{% if enable_thinking is defined and enable_thinking is false %}<think></think>{% endif %}",
    "reasoning_effort": "{% set reasoning_effort = reasoning_effort | default('low') %}{{ reasoning_effort }}",
    "documents": "{{ documents }}",
    "deep": "{% macro one(a) %}{{ a }}{{ deep }}{% endmacro %}{{ one(eos_token) }}",
}


@given(read=st.sets(st.sampled_from(list(READS))), set_=st.sets(st.sampled_from([*READS, "messages", "range", "a", "x"])))
def test_a_variable_can_be_set_if_the_template_reads_it(read, set_):
    template = "".join(READS[name] for name in sorted(read)) + "{{ messages[0].content }}"
    given_values = {name: {"k": [1, None, "é"]} if name == "deep" else False for name in sorted(set_)}
    wrong = set_ - read | (set_ & {"documents"})
    if wrong:
        with refused("chat_template_kwargs", "unknown_name"):
            template_variables(template, given_values)
    variables = template_variables(template, given_values, optional=wrong)
    assert variables == {name: value for name, value in given_values.items() if name not in wrong}
    text = render(build_tokenizer(), template, told("a"), variables=variables)
    assert ("<think>" in text) == ("enable_thinking" in variables) and text.endswith("a")


DEEP = []
for _ in range(9999):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    "given_values", [[1], *({"deep": deep} for deep in (float("nan"), object(), "\ud800", DEEP, "x" * 65536))]
)
def test_variables_are_json_of_limited_size(given_values):
    long = isinstance(given_values, dict) and isinstance(given_values["deep"], str) and len(given_values["deep"]) > 1
    with refused("chat_template_kwargs", "too_long" if long else "invalid_type"):
        template_variables(READS["deep"], given_values)


# The branches of published templates, without their texts: which roles they render where, and what they do to a content.
PUBLISHED = {
    "qwen2.5, sdar, dream": (
        "{% if messages[0].role == 'system' %}<s>{{ messages[0].content }}{% else %}<s>You are helpful.{% endif %}"
        "{% for m in messages %}"
        "{% if m.role == 'user' or (m.role == 'system' and not loop.first) or (m.role == 'assistant' and not m.tool_calls) %}"
        "<{{ m.role }}>{{ m.content }}"
        "{% elif m.role == 'assistant' %}<assistant>{{ m.content }}{{ m.tool_calls | tojson }}"
        "{% elif m.role == 'tool' and not loop.first and messages[loop.index0 - 1].role in ('assistant', 'tool') %}"
        "<tool_response>{{ m.content }}{% endif %}{% endfor %}"
    ),
    "qwen3": (
        "{% set ns = namespace(last=messages | length - 1, open=true) %}"
        "{% if messages[0].role == 'system' %}<s>{{ messages[0].content }}{% endif %}"
        "{% for m in messages[::-1] %}{% if ns.open and m.role == 'user' and not (m.content.startswith('<tool_response>') and "
        "m.content.endswith('</tool_response>')) %}{% set ns.open = false %}{% set ns.last = messages | length - loop.index %}"
        "{% endif %}{% endfor %}{% for m in messages %}{% if m.role == 'user' or (m.role == 'system' and not loop.first) %}"
        "<{{ m.role }}>{{ m.content }}{% elif m.role == 'assistant' %}{% set content = m.content.split('</think>')[-1] %}"
        "<assistant>{% if loop.index0 > ns.last and '</think>' in m.content %}{{ m.content.split('</think>')[0] }}</think>"
        "{% endif %}{{ content.lstrip('\\n') }}{% elif m.role == 'tool' %}<tool_response>{{ m.content }}{% endif %}{% endfor %}"
    ),
    "gemma": (
        "{% if messages[0].role == 'system' %}{% set first = messages[0].content + '\\n' %}{% set messages = messages[1:] %}"
        "{% else %}{% set first = '' %}{% endif %}{% for m in messages %}"
        "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}{% endif %}"
        "<{{ m.role }}>{{ (first if loop.first else '') + m.content | trim }}{% endfor %}"
    ),
    "llama3": (
        "{% if messages[0].role == 'system' %}{% set top = messages[0].content | trim %}{% set messages = messages[1:] %}"
        "{% endif %}{{ top }}{% for m in messages %}{% if m.role != 'tool' %}<{{ m.role }}>{{ m.content | trim }}"
        "{% else %}<ipython>{{ m.content | tojson }}{% endif %}{% endfor %}"
    ),
    "gpt-oss": (
        "{% set top = messages[0].content if messages[0].role in ('system', 'developer') else '' %}<developer>{{ top }}"
        "{% for m in messages %}{% if m.role in ('user', 'assistant') %}<{{ m.role }}>{{ m.content }}{% endif %}{% endfor %}"
    ),
}
TEMPLATES = PUBLISHED | {family.name: family.chat_template for family in FAMILIES.values() if family.chat_template}
ROLES = st.sampled_from(["system", "user", "assistant", "tool", "developer", "critic"])
CONTENTS = st.sampled_from(
    ["a", "Hello", "user", " two\nlines \n", "", "  ", "<think>why</think>\n\nyes", '{"a": "b<"}', "<|im_end|>", "é\\"]
)
CALLS = st.lists(st.sampled_from(["add", "user"]), max_size=2)
TURNS = st.lists(st.tuples(ROLES, CONTENTS, CALLS), min_size=1, max_size=6)


def called(names):
    """The field of a message of the assistant that calls these functions."""
    return {"tool_calls": [{"type": "function", "function": {"name": name, "arguments": {}}} for name in names]}


@given(st.sampled_from(sorted(TEMPLATES)), TURNS)
def test_a_message_is_in_the_prompt_or_refused(name, turns):
    """Independently of marks: a message is in the prompt if another content of it gives another prompt."""
    tokenizer, template = build_tokenizer(), TEMPLATES[name]
    known = {"developer": "developer" if "developer" in template else "system"}
    given = [
        {"role": role, "content": content} | (called(names) if role == "assistant" and names else {})
        for role, content, names in turns
    ]
    messages = [message | {"role": known.get(message["role"], message["role"])} for message in given]

    def rendered(messages):
        return tokenizer.apply_chat_template(messages, chat_template=template, add_generation_prompt=True, tokenize=False)

    try:
        text = rendered(messages)
    except TemplateError:
        text = None
    changed = [(f"messages.{i}", i, {"content": m["content"] + "!"}) for i, m in enumerate(messages) if m["content"].strip()]
    for i, message in enumerate(messages):
        names = [call["function"]["name"] for call in message.get("tool_calls", ())]
        others = [called([*names[:n], name + "!", *names[n + 1 :]]) for n, name in enumerate(names)]
        changed += [(f"messages.{i}.tool_calls", i, other) for other in others]
    dropped = [
        (field, messages[i]["role"])
        for field, i, other in sorted(changed, key=lambda change: change[1])
        if text and rendered([*messages[:i], messages[i] | other, *messages[i + 1 :]]) == text
    ]
    event(f"refused: {bool(dropped)}, rendered: {text is not None}")
    try:
        assert render(tokenizer, template, given) == text
        assert not dropped
    except Refused as error:
        refusal = error.refusal
        assert (refusal.code == "message_dropped") == (text is not None)
        if text is not None:
            field, role = dropped[0]
            assert refusal.field == field and (repr(role) in refusal.message) == (not field.endswith("calls"))
