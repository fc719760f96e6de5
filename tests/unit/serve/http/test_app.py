"""The official client, unmodified, gets what `LLM.generate` answers."""

# Options of every type are given by name.
# pyright: reportArgumentType=false, reportOptionalMemberAccess=false

import asyncio
from dataclasses import replace
from math import exp

import pytest

from dlstep import SamplingParams
from dlstep.text.chat import render
from training.tokenizer import build_tokenizer

from ....helpers.serving import TEMPLATE, questions, tiny_llm

COUNT, AT_ONCE, TOKENS = 24, 32, 48
COMMON = {"model": "tiny-bd", "max_tokens": TOKENS}
PARAMS = SamplingParams(max_tokens=TOKENS)
DRAFTS = {"dlstep": {"stream": "drafts"}}


@pytest.fixture(scope="module")
def client(tiny):
    with tiny.client() as opened:
        yield opened


def text_of(chunks):
    """The text of all choices of a stream of completions."""
    return "".join([choice.text for chunk in chunks for choice in chunk.choices])


def expected(prompts, params=PARAMS):
    """The texts that the same engine gives without a server."""
    return [output.text for output in tiny_llm().generate(prompts, params)]


async def each(prompts, answer):
    """The answers to prompts, so many at a time."""
    seats = asyncio.Semaphore(AT_ONCE)

    async def one(prompt):
        async with seats:
            return await answer(prompt)

    return list(await asyncio.gather(*map(one, prompts)))


@pytest.mark.parametrize("count", [COUNT, pytest.param(256, marks=pytest.mark.stress)])
@pytest.mark.parametrize("kind", ["plain", "stream", "drafts"])
def test_the_async_client_gets_the_texts_of_generate(tiny, kind, count):
    prompts = questions(count)

    async def answers():
        async with tiny.async_client() as client:

            async def answer(prompt):
                if kind == "plain":
                    return text_of([await client.completions.create(prompt=prompt, **COMMON)])
                body = DRAFTS if kind == "drafts" else {}
                stream = await client.completions.create(prompt=prompt, stream=True, extra_body=body, **COMMON)
                return text_of([chunk async for chunk in stream])

            return await each(prompts, answer)

    assert asyncio.run(answers()) == expected(prompts)


@pytest.mark.parametrize("drafts", [False, True])
def test_chat_is_the_rendered_prompt_answered(client, drafts):
    messages = [{"role": "user", "content": question} for question in questions(1)]
    (wanted,) = expected([render(build_tokenizer(), TEMPLATE, messages)])
    whole = client.chat.completions.create(model="tiny-bd", messages=messages, max_completion_tokens=TOKENS)
    assert whole.choices[0].message.content == wanted
    with client.chat.completions.stream(messages=messages, extra_body=DRAFTS if drafts else {}, **COMMON) as helper:
        (choice,) = helper.get_final_completion().choices
    assert choice.message.content == wanted and choice.finish_reason == "stop"


def test_several_answers_have_seeds_of_their_own(client):
    (prompt,) = questions(1)
    found = client.completions.create(prompt=prompt, n=3, temperature=2.0, seed=7, **COMMON)
    wanted = [expected([prompt], SamplingParams(max_tokens=TOKENS, temperature=2.0, seed=seed))[0] for seed in (7, 8, 9)]
    assert [choice.text for choice in found.choices] == wanted
    assert len(set(wanted)) > 1, "the seeds matter"


def test_two_prompts_with_two_answers_each_end_at_a_stop_string(client):
    prompts, stop = questions(2), ["shells", "."]
    found = client.completions.create(prompt=prompts, n=2, stop=stop, **COMMON)
    one, other = expected(prompts, SamplingParams(max_tokens=TOKENS, stop=(*stop,)))
    assert [choice.text for choice in found.choices] == [one, one, other, other]
    assert text_of(client.completions.create(prompt=prompts[0], stop=stop, stream=True, **COMMON)) == one
    assert {choice.finish_reason for choice in found.choices} == {"stop"}


def test_logprobs_have_the_offsets_of_their_texts(client):
    (prompt,) = questions(1)
    (output,) = tiny_llm().generate(prompt, PARAMS)
    whole = client.completions.create(prompt=prompt, logprobs=1, **COMMON).choices[0]
    ids = {"return_token_ids": True}
    stream = client.completions.create(prompt=prompt, logprobs=1, stream=True, extra_body=ids, **COMMON)
    first, *choices = [choice for chunk in stream for choice in chunk.choices]
    assert first.prompt_token_ids == tiny_llm().engine.tokenizer.encode(prompt)
    offsets = [offset for choice in choices for offset in choice.logprobs.text_offset]
    placed = zip(whole.logprobs.tokens, whole.logprobs.text_offset, strict=True)
    assert "".join(whole.logprobs.tokens) == output.text and offsets == whole.logprobs.text_offset
    assert all(output.text.startswith(text, offset) for text, offset in placed)


@pytest.mark.parametrize("count", [0, 5, 20])
def test_top_logprobs_and_ids_are_those_of_generate(client, count):
    (prompt,) = questions(1)
    (output,) = tiny_llm().generate(prompt, replace(PARAMS, top_logprobs=count))
    common = {"extra_body": {"return_token_ids": True, "return_tokens_as_token_ids": True}, **COMMON}
    (choice,) = client.completions.create(prompt=prompt, logprobs=count, **common).choices
    chat = client.chat.completions.create(
        messages=[{"role": "user", "content": prompt}], logprobs=True, top_logprobs=count, **common
    )
    (chat_choice,) = chat.choices
    settled = [dict([pair]) for pair in zip(output.token_ids, output.probabilities, strict=True)]
    likely = [dict(top) for top in output.top_probabilities] or [{} for _ in settled]
    tops = choice.logprobs.top_logprobs
    assert [by_id(top) for top in tops] == [
        pytest.approx(one | top, rel=1e-4) for one, top in zip(settled, likely, strict=True)
    ]
    assert {len(top) for top in tops} == {max(count, 1)}
    assert choice.token_ids == chat_choice.token_ids == [*output.token_ids]
    assert choice.prompt_token_ids == chat.prompt_token_ids == [*tiny_llm().engine.tokenizer.encode(prompt)]
    entries = chat_choice.logprobs.content
    assert [entry.token for entry in entries] == [f"token_id:{token}" for token in output.token_ids]
    assert [by_id({top.token: top.logprob for top in entry.top_logprobs}) for entry in entries] == [
        pytest.approx(each, rel=1e-4) for each in likely
    ]


def by_id(top):
    """The probabilities of tokens by id."""
    return {int(name.removeprefix("token_id:")): exp(logprob) for name, logprob in top.items()}


@pytest.mark.parametrize(
    "options, params",
    [
        ({}, {}),
        ({"accept_threshold": 0.3}, {"strategy_options": {"accept_threshold": 0.3}}),
        ({"max_nfe": 2}, {"max_nfe": 2}),
        ({"pinned": {"3": " shells"}}, {"pinned": tiny_llm().pins({3: " shells"})}),
    ],
    ids=str,
)
def test_an_answer_with_options_and_what_it_took_are_those_of_generate(client, options, params):
    (prompt,) = questions(1)
    (output,) = tiny_llm().generate(prompt, replace(PARAMS, **params))
    found = client.completions.create(prompt=prompt, extra_body={"dlstep": options}, **COMMON)
    (choice,) = found.choices
    told = choice.dlstep
    assert choice.text == output.text and choice.finish_reason in ("stop", "length")
    assert (told["finish_reason"], told["nfe"], told["step"]) == (output.finish_reason, output.nfe, output.steps)
    assert told["tokens_per_forward"] == pytest.approx(output.tokens_per_forward, abs=1e-3)
    assert found.usage.completion_tokens == len(output.token_ids)
    assert found.usage.total_tokens == found.usage.prompt_tokens + found.usage.completion_tokens


def test_an_echo_begins_with_the_prompt_as_it_is_fed(client):
    (prompt,) = questions(1)
    (wanted,) = expected([prompt])
    text = text_of([client.completions.create(prompt=prompt, echo=True, **COMMON)])
    assert text_of(client.completions.create(prompt=prompt, echo=True, stream=True, **COMMON)) == text
    assert text.removesuffix(wanted).rstrip("\n") == prompt.rstrip("\n")


def test_tokenize_and_detokenize_are_inverse(tiny):
    (prompt,) = questions(1)
    found = tiny.post("/tokenize", prompt=prompt, return_token_strs=True)
    assert found["count"] == len(found["tokens"]) == len(found["token_strs"])
    assert tiny.post("/detokenize", tokens=found["tokens"])["prompt"].rstrip("\n") == prompt.rstrip("\n")
    assert tiny.post("/tokenize", messages=[{"role": "user", "content": prompt}])["count"] >= found["count"]
