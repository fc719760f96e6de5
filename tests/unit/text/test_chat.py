"""Conversations: which template renders them, what is refused, and what a second turn finds again."""

import json
from dataclasses import replace

import pytest

from dlstep import LLM, Plan, Samples, SamplingParams
from dlstep.cli import main
from dlstep.core import Driver
from dlstep.text.chat import as_conversations, chat_prompt
from dlstep.tiny.tokenizer import EOS_ID, build_tokenizer

from ...helpers.shadow_llm import make_llm

LINES = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"
NAMED = (
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}<eos>{% endfor %}{% if add_generation_prompt %}bot:{% endif %}"
)
QUESTION = "Max has 53 shells. Later Max buys 39 more. How many shells does Max have?"
HELLO = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello"}]


def told(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


class Recording:
    """A driver that remembers its plans."""

    def __init__(self, driver: Driver) -> None:
        self.driver, self.plans = driver, list[Plan]()

    def run(self, plan: Plan) -> Samples:
        self.plans.append(plan)
        return self.driver.run(plan)


@pytest.fixture
def llm() -> LLM:
    """A model without a template in its tokenizer, whose family has one."""
    return LLM.of(replace(make_llm().engine, chat_template=NAMED))


def test_a_conversation_is_rendered_for_an_answer(llm: LLM) -> None:
    tokens = llm.chat_prompt(HELLO)
    assert llm.engine.tokenizer.decode(list(tokens)) == "system: Be kind.<eos>user: Hello<eos>bot:"
    assert tokens.count(EOS_ID) == 2


def test_the_template_of_the_tokenizer_comes_first() -> None:
    tokenizer = build_tokenizer()
    tokenizer.chat_template = LINES
    assert tokenizer.decode(list(chat_prompt(tokenizer, NAMED, HELLO))) == "Be kind.\nHello\n"
    tokenizer.chat_template = None
    assert tokenizer.decode(list(chat_prompt(tokenizer, LINES, HELLO))) == "Be kind.\nHello\n"


def test_special_tokens_are_those_of_the_template() -> None:
    from tokenizers.processors import TemplateProcessing

    tokenizer = build_tokenizer()
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="<eos> $A <eos>", special_tokens=[("<eos>", EOS_ID)])
    assert tokenizer.encode("Hello").count(EOS_ID) == 2
    assert chat_prompt(tokenizer, NAMED, HELLO).count(EOS_ID) == 2


def test_chat_generates_from_rendered_conversations(llm: LLM) -> None:
    params = SamplingParams(max_tokens=12, ignore_eos=True)
    one = llm.chat(HELLO, params)
    both = llm.chat([told("a"), HELLO], params)
    assert one == both[1:] == llm.generate([llm.chat_prompt(HELLO)], params)
    assert one[0].prompt == llm.chat_prompt(HELLO)
    assert "".join(llm.stream(llm.chat_prompt(HELLO), params)) == one[0].text


def test_one_conversation_or_many() -> None:
    assert as_conversations(HELLO) == [HELLO]
    assert as_conversations([HELLO, told("b")]) == [HELLO, told("b")]
    assert as_conversations([HELLO, []]) == [HELLO, []]


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([], "needs at least one message"),
        ([HELLO, []], "needs at least one message"),
        ("Hello", "messages must be a conversation or a list of conversations, got 'Hello'"),
        ([*HELLO, "Hello"], "message 2 must be a mapping with role and content, got 'Hello'"),
        ([{"content": "Hello"}], "message 0 needs a text as its role, got None"),
        ([{"role": "user", "content": [{"type": "text"}]}], "message 0 needs a text as its content, got "),
    ],
)
def test_messages_that_are_none(llm: LLM, messages: list[dict[str, str]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        llm.chat(messages)
    assert llm.state.done


def test_without_a_template_or_a_tokenizer_it_is_said() -> None:
    with pytest.raises(ValueError, match="neither the tokenizer nor the family of the model has a chat template"):
        LLM.of(replace(make_llm().engine, chat_template=None)).chat(HELLO)
    with pytest.raises(ValueError, match="a conversation needs a tokenizer"):
        LLM.of(replace(make_llm().engine, tokenizer=None)).chat(HELLO)


def test_the_embedded_models_answer_the_last_message_of_a_conversation() -> None:
    llm, question = LLM("tiny-bd"), "Max has 53 shells. Later Max buys 39 more. How many shells does Max have?"
    (plain,) = llm.generate(question)
    before = [{"role": "system", "content": "Be kind."}, *told("Who are you?"), {"role": "assistant", "content": "Max."}]
    for conversation in (told(question), told(f"{question}\n"), [*before, *told(question)]):
        (answer,) = llm.chat(conversation)
        assert answer.token_ids == plain.token_ids and "53+39=92" in answer.text


def test_what_a_template_refuses_is_told(llm: LLM) -> None:
    picky = LLM.of(replace(llm.engine, chat_template="{{ raise_exception('only users may speak') }}"))
    with pytest.raises(ValueError, match="cannot render these messages: only users may speak"):
        picky.chat(HELLO)
    broken = LLM.of(replace(llm.engine, chat_template="{% for %}"))
    with pytest.raises(ValueError, match="cannot render these messages"):
        broken.chat(HELLO)


def test_a_second_turn_finds_the_pages_of_the_first() -> None:
    engine = LLM("tiny-bd", page_size=2, buffer_size=1).engine
    driver = Recording(engine.driver)
    llm = LLM.of(replace(engine, driver=driver, chat_template=LINES))
    first = llm.chat(told(QUESTION))[0]
    assert first.finish_reason == "stop"
    asked = len(driver.plans)
    conversation = [*told(QUESTION), {"role": "assistant", "content": first.text}, *told(QUESTION)]
    second = llm.chat(conversation)[0]
    shared = 2 * len(driver.plans[asked].admissions[0].shared)
    # Not only the question: the answer as well, except the blocks after which nothing was decoded.
    known = len(first.prompt) + len(first.token_ids)
    assert second.prompt[:known] == (*first.prompt, *first.token_ids)
    assert len(first.prompt) + 8 < shared <= known
    fresh = LLM.of(replace(LLM("tiny-bd", page_size=2, buffer_size=1).engine, chat_template=LINES))
    assert fresh.chat(conversation)[0].token_ids == second.token_ids


def test_the_command_takes_prompts_as_messages(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    engine = replace(make_llm().engine, chat_template=NAMED)
    monkeypatch.setattr("dlstep.llm.load_engine", lambda config: engine)
    arguments = ["generate", "Hello", "you", "--chat", "--system", "Be kind.", "--json", "--max_tokens", "4"]
    assert main(arguments) in (0, 1)
    rows = json.loads(capsys.readouterr().out)
    texts = [engine.tokenizer.decode(row["prompt"]) for row in rows]
    assert texts == [f"system: Be kind.<eos>user: {prompt}<eos>bot:" for prompt in ("Hello", "you")]


THINKS = "{{ messages[-1].content }}{% if enable_thinking %} yes{% endif %}"


def test_variables_of_the_template_are_set(
    llm: LLM, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
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
    message = "chat_template_kwargs cannot set 'thinking': the variables of this chat template are enable_thinking"
    with pytest.raises(ValueError, match=message):
        LLM.of(engine).chat_prompt(HELLO, {"thinking": True})
    assert main(["generate", "Hello", "--chat", "--chat_template_kwargs", '{"thinking": true}']) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--chat_template_kwargs", "{a: 1}"],
            "--system and --chat_template_kwargs apply only to conversations: add --chat",
        ),
        (
            ["--chat", "--chat_template_kwargs", "[1]"],
            "--chat_template_kwargs takes a mapping like {name: value} or null, got '[1]'",
        ),
        (["--system", "Be kind."], "--system and --chat_template_kwargs apply only to conversations: add --chat"),
        (["--use_lora", "true"], "--use_lora=True needs lora_path, the folder of an adapter"),
        (["--lora_path", "/nonsense"], "/nonsense holds no adapter_config.json"),
    ],
)
def test_what_the_command_refuses(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "Hello", *arguments]) == 2
    assert message in capsys.readouterr().err
