"""The official client, unmodified, gets what `LLM.generate` answers."""

# Options of every type are given by name.
# pyright: reportArgumentType=false, reportOptionalMemberAccess=false

import asyncio
from dataclasses import replace
from math import exp

import pytest
from openai import BadRequestError, NotFoundError

from dlstep import SamplingParams
from dlstep.text.chat import render
from training.tokenizer import build_tokenizer

from ....helpers.serving import TEMPLATE, questions, tiny_llm

COUNT, AT_ONCE, TOKENS = 48, 32, 48
PARAMS = SamplingParams(max_tokens=TOKENS)
DRAFTS = {"dlstep": {"stream": "drafts"}}


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


async def joined(stream):
    """The text of a stream of completions."""
    return "".join([choice.text async for chunk in stream for choice in chunk.choices])


@pytest.mark.parametrize("count", [COUNT, pytest.param(256, marks=pytest.mark.stress)])
@pytest.mark.parametrize("kind", ["plain", "stream", "drafts"])
def test_the_async_client_gets_the_texts_of_generate(tiny, kind, count):
    prompts = questions(count)

    async def answers():
        async with tiny.async_client() as client:

            async def answer(prompt):
                if kind == "plain":
                    found = await client.completions.create(model="tiny-bd", prompt=prompt, max_tokens=TOKENS)
                    return found.choices[0].text
                body = DRAFTS if kind == "drafts" else {}
                stream = await client.completions.create(
                    model="tiny-bd", prompt=prompt, max_tokens=TOKENS, stream=True, extra_body=body
                )
                return await joined(stream)

            return await each(prompts, answer)

    assert asyncio.run(answers()) == expected(prompts)


@pytest.mark.parametrize("drafts", [False, True])
def test_chat_is_the_rendered_prompt_answered(tiny, drafts):
    messages = [{"role": "user", "content": question} for question in questions(1)]
    prompt = render(build_tokenizer(), TEMPLATE, messages)
    (wanted,) = expected([prompt])
    body = DRAFTS if drafts else {}
    with tiny.client() as client:
        whole = client.chat.completions.create(model="tiny-bd", messages=messages, max_completion_tokens=TOKENS)
        assert whole.choices[0].message.content == wanted
        stream = client.chat.completions.create(
            model="tiny-bd", messages=messages, max_tokens=TOKENS, stream=True, extra_body=body
        )
        texts = [choice.delta.content or "" for chunk in stream for choice in chunk.choices]
        assert "".join(texts) == wanted
        with client.chat.completions.stream(model="tiny-bd", messages=messages, max_tokens=TOKENS, extra_body=body) as helper:
            for _ in helper:
                pass
            final = helper.get_final_completion()
        assert final.choices[0].message.content == wanted
        assert final.choices[0].finish_reason == "stop"


def test_several_answers_have_seeds_of_their_own(tiny):
    (prompt,) = questions(1)
    with tiny.client() as client:
        found = client.completions.create(model="tiny-bd", prompt=prompt, max_tokens=TOKENS, n=3, temperature=2.0, seed=7)
    wanted = [expected([prompt], SamplingParams(max_tokens=TOKENS, temperature=2.0, seed=seed))[0] for seed in (7, 8, 9)]
    assert [choice.text for choice in found.choices] == wanted
    assert len(set(wanted)) > 1, "the seeds matter"


def test_two_prompts_with_two_answers_each_end_at_a_stop_string(tiny):
    prompts = questions(2)
    params = SamplingParams(max_tokens=TOKENS, stop=("shells", "."))
    with tiny.client() as client:
        found = client.completions.create(model="tiny-bd", prompt=prompts, max_tokens=TOKENS, n=2, stop=["shells", "."])
        stream = client.completions.create(
            model="tiny-bd", prompt=prompts[0], max_tokens=TOKENS, stop=["shells", "."], stream=True
        )
        text = "".join(choice.text for chunk in stream for choice in chunk.choices)
    wanted = expected(prompts, params)
    assert [choice.text for choice in found.choices] == [wanted[0], wanted[0], wanted[1], wanted[1]]
    assert text == wanted[0]
    assert {choice.finish_reason for choice in found.choices} == {"stop"}


def test_logprobs_have_the_offsets_of_their_texts(tiny):
    (prompt,) = questions(1)
    (output,) = tiny_llm().generate(prompt, PARAMS)
    with tiny.client() as client:
        whole = client.completions.create(model="tiny-bd", prompt=prompt, max_tokens=TOKENS, logprobs=1).choices[0]
        stream = client.completions.create(model="tiny-bd", prompt=prompt, max_tokens=TOKENS, logprobs=1, stream=True)
        offsets = [offset for chunk in stream for choice in chunk.choices for offset in choice.logprobs.text_offset]
    placed = zip(whole.logprobs.tokens, whole.logprobs.text_offset, strict=True)
    assert "".join(whole.logprobs.tokens) == output.text and offsets == whole.logprobs.text_offset
    assert all(output.text.startswith(text, offset) for text, offset in placed)


@pytest.mark.parametrize("count", [0, 5, 20])
@pytest.mark.parametrize("mode", ["whole", "settled", "drafts", "steps"])
def test_top_logprobs_and_ids_are_those_of_generate(tiny, mode, count):
    (prompt,) = questions(1)
    (output,) = tiny_llm().generate(prompt, replace(PARAMS, top_logprobs=count))
    streams, beside = mode != "whole", {"dlstep": {"stream": mode}} if mode != "whole" else {}
    ids = {"return_token_ids": True, "return_tokens_as_token_ids": True}
    common = {"model": "tiny-bd", "max_tokens": TOKENS, "stream": streams, "extra_body": beside | ids}
    with tiny.client() as client:
        found = client.completions.create(prompt=prompt, logprobs=count, **common)
        chunks = list(found) if streams else [found]
        messages = [{"role": "user", "content": prompt}]
        told = client.chat.completions.create(messages=messages, logprobs=True, top_logprobs=count, **common)
        chat_chunks = list(told) if streams else [told]
    choices = [choice for chunk in chunks for choice in chunk.choices]
    settled = [dict([pair]) for pair in zip(output.token_ids, output.probabilities, strict=True)]
    likely = [dict(top) for top in output.top_probabilities] or [{} for _ in settled]
    tops = [top for choice in choices if choice.logprobs for top in choice.logprobs.top_logprobs]
    assert [by_id(top) for top in tops] == [
        pytest.approx(one | top, rel=1e-4) for one, top in zip(settled, likely, strict=True)
    ]
    assert [len(top) for top in tops] == [max(count, 1)] * len(output.token_ids)
    assert [token for choice in choices for token in getattr(choice, "token_ids", [])] == [*output.token_ids]
    assert [*tiny_llm().engine.tokenizer.encode(prompt)] == choices[0].prompt_token_ids
    entries = [entry for chunk in chat_chunks for c in chunk.choices if c.logprobs for entry in c.logprobs.content]
    assert [entry.token for entry in entries] == [f"token_id:{token}" for token in output.token_ids]
    assert [by_id({top.token: top.logprob for top in entry.top_logprobs}) for entry in entries] == [*map(pytest.approx, likely)]
    assert [token for chunk in chat_chunks for c in chunk.choices for token in getattr(c, "token_ids", [])] == [
        *output.token_ids
    ]
    assert chat_chunks[0].prompt_token_ids == choices[0].prompt_token_ids


def by_id(top):
    """The probabilities of tokens by id."""
    return {int(name.removeprefix("token_id:")): exp(logprob) for name, logprob in top.items()}


def test_what_the_answer_took_is_told(tiny):
    (prompt,) = questions(1)
    (output,) = tiny_llm().generate(prompt, PARAMS)
    with tiny.client() as client:
        found = client.completions.create(model="tiny-bd", prompt=prompt, max_tokens=TOKENS)
    told = found.choices[0].dlstep
    assert (told["finish_reason"], told["nfe"], told["step"]) == (output.finish_reason, output.nfe, output.steps)
    assert told["tokens_per_forward"] == pytest.approx(output.tokens_per_forward, abs=1e-3)
    assert found.usage.completion_tokens == len(output.token_ids)
    assert found.usage.total_tokens == found.usage.prompt_tokens + found.usage.completion_tokens


def test_options_of_the_strategy_are_those_of_the_engine(tiny):
    (prompt,) = questions(1)
    wanted = {
        "threshold": SamplingParams(max_tokens=TOKENS, strategy_options={"accept_threshold": 0.3}),
        "limit": SamplingParams(max_tokens=TOKENS, max_nfe=2),
        "pins": SamplingParams(max_tokens=TOKENS, pinned=tiny_llm().pins({3: " shells"})),
    }
    bodies = {
        "threshold": {"accept_threshold": 0.3},
        "limit": {"max_nfe": 2},
        "pins": {"pinned": {"3": " shells"}},
    }
    with tiny.client() as client:
        for name, params in wanted.items():
            found = client.completions.create(
                model="tiny-bd", prompt=prompt, max_tokens=TOKENS, extra_body={"dlstep": bodies[name]}
            )
            (output,) = tiny_llm().generate(prompt, params)
            choice = found.choices[0]
            assert (choice.text, choice.dlstep["nfe"]) == (output.text, output.nfe), name
            assert choice.dlstep["finish_reason"] == output.finish_reason
    assert choice.finish_reason in ("stop", "length")


def test_an_echo_begins_with_the_prompt_as_it_is_fed(tiny):
    (prompt,) = questions(1)
    (wanted,) = expected([prompt])
    with tiny.client() as client:
        whole = client.completions.create(model="tiny-bd", prompt=prompt, max_tokens=TOKENS, echo=True)
        stream = client.completions.create(model="tiny-bd", prompt=prompt, max_tokens=TOKENS, echo=True, stream=True)
        text = "".join(choice.text for chunk in stream for choice in chunk.choices)
    assert whole.choices[0].text == text
    assert text.removesuffix(wanted).rstrip("\n") == prompt.rstrip("\n")


def test_models_and_errors_are_as_the_client_knows_them(tiny):
    with tiny.client() as client:
        assert [model.id for model in client.models.list()] == ["tiny-bd"]
        with pytest.raises(NotFoundError, match="does not exist"):
            client.completions.create(model="another", prompt="x")
        with pytest.raises(BadRequestError) as caught:
            client.completions.create(model="tiny-bd", prompt="x", temperature=-1)
        assert caught.value.param == "temperature"
        with pytest.raises(BadRequestError) as caught:
            client.completions.create(model="tiny-bd", prompt="x", extra_body={"dlstep": {"accept_threshold": 2}})
        assert caught.value.param == "dlstep.accept_threshold"


def test_tokenize_and_detokenize_are_inverse(tiny):
    (prompt,) = questions(1)
    with tiny.http() as http:
        found = http.post("/tokenize", json={"prompt": prompt, "return_token_strs": True}).json()
        back = http.post("/detokenize", json={"tokens": found["tokens"]}).json()
        chat = http.post("/tokenize", json={"messages": [{"role": "user", "content": prompt}]}).json()
    assert found["count"] == len(found["tokens"]) == len(found["token_strs"])
    assert back["prompt"].rstrip("\n") == prompt.rstrip("\n")
    assert chat["count"] >= found["count"]
