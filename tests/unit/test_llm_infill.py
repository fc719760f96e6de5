"""Infilling as a user asks for it: prompt and suffix in Python, on the command line and over HTTP, on a random network."""

import json

import pytest
from openai import BadRequestError

from dlstep import LLM, SamplingParams
from dlstep.cli import main
from dlstep.core.lifecycle import probe
from training.tokenizer import EOS_ID, MASK_ID

from ..helpers.refusals import refused
from ..helpers.serving import served, tiny_llm
from ..helpers.tiny_families import write_checkpoint

PROMPT, SUFFIX = "Max has 53 shells.", " How many shells does Max have?"
LIKELY = {"logit_bias": {"bias": {MASK_ID + 3: 4.0, EOS_ID: 3.0}}}  # expansions and deletions
OPTIONS = {"temperature": 1.0, "seed": 3, "max_tokens": 12, "top_logprobs": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A random network."""
    folder = tmp_path_factory.mktemp("networks") / "DreamOn-tiny"
    write_checkpoint(folder, "dreamon", dlstep={"initial_masks": 3, "delete_right": False})
    return str(folder)


@pytest.fixture(scope="module")
def llm(folder):
    return LLM(folder, processors=LIKELY)


def params_of(llm, **options):
    return SamplingParams(suffix=llm.suffix(SUFFIX), **OPTIONS | options)


def test_a_suffix_is_text_and_an_end_without_special_tokens(llm):
    tokenizer, (end, *_) = llm.engine.tokenizer, llm.state.config.spec.eos_ids
    assert llm.suffix(SUFFIX) == (*tokenizer.encode(SUFFIX, add_special_tokens=False), end)
    assert llm.suffix((5, 7)) == (5, 7)
    with refused("suffix", "invalid_type"):
        llm.suffix(5)


def test_a_text_before_a_suffix_begins_as_a_sequence_does(folder):
    own = LLM(folder)
    tokenizer = own.engine.tokenizer
    bare = tuple(tokenizer.encode(PROMPT))
    tokenizer.bos_token = "#"
    fed = []
    for params in (SamplingParams(max_tokens=2), SamplingParams(max_tokens=2, suffix=(5,))):
        session = own.session()
        session.submit(PROMPT, params)
        fed.append(session.state.find(0).request.prompt)
    assert fed == [bare, (tokenizer.bos_token_id, *bare)]


def test_each_way_of_asking_gives_the_same_answer(llm, folder, capsys):
    answers = set()
    for seed in range(4):
        params = params_of(llm, seed=seed)
        (output,) = llm.generate(PROMPT, params, progress=False)
        ids = tuple(llm.engine.tokenizer.encode(PROMPT))
        (of_ids,) = llm.generate([ids], params, progress=False)
        session = llm.session()
        session.submit(PROMPT, params)
        session.run()
        assert output.token_ids == of_ids.token_ids == session.output(0).token_ids
        assert "".join(llm.stream(PROMPT, params)) == output.text == session.output(0).text
        answers.add(output.token_ids)
    assert len({len(answer) for answer in answers}) > 2, "lengths do not vary"
    assert llm.generate(PROMPT, params_of(llm), progress=False) != llm.generate(
        PROMPT, SamplingParams(**OPTIONS), progress=False
    )
    flags = ["--processors", json.dumps(LIKELY), "--temperature", "1", "--seed", "3", "--max_tokens", "12", "--json"]
    assert main(["generate", PROMPT, "--suffix", SUFFIX, "--model", folder, *flags]) == 0
    (shown,) = json.loads(capsys.readouterr().out)
    assert shown["text"] == llm.generate(PROMPT, params_of(llm, top_logprobs=0), progress=False)[0].text


def test_http_infills_by_the_field_of_openai(llm):
    body = {"model": llm.engine.name, "prompt": PROMPT, "max_tokens": 12, "temperature": 1.0}
    with served(llm.engine) as server, server.client() as client:
        for seed in range(2):
            (expected,) = llm.generate(PROMPT, params_of(llm, seed=seed), progress=False)
            found = client.completions.create(**body, seed=seed, suffix=SUFFIX, logprobs=2)
            assert (found.choices[0].text, found.choices[0].finish_reason) == (expected.text, expected.finish_reason)
            given = llm.engine.tokenizer.encode(PROMPT)
            assert found.usage.prompt_tokens == len(given) + len(llm.suffix(SUFFIX))
            assert found.usage.completion_tokens == len(expected.token_ids) == len(found.choices[0].logprobs.tokens)
            stream = client.completions.create(**body, seed=seed, suffix=SUFFIX, stream=True)
            assert "".join(choice.text for chunk in stream for choice in chunk.choices) == expected.text
        bare, empty = [client.completions.create(**body, seed=0, **more).choices[0].text for more in ({}, {"suffix": ""})]
        assert bare == empty == llm.generate(PROMPT, SamplingParams(**OPTIONS | {"seed": 0}), progress=False)[0].text
        with pytest.raises(BadRequestError, match="leaves no room for an answer"):
            client.completions.create(**body, suffix="5 " * 400)
    with served(tiny_llm().engine) as server, server.client() as client:
        with pytest.raises(BadRequestError, match="it has no effect in MultiBD") as caught:
            client.completions.create(model="tiny-bd", prompt=PROMPT, suffix=SUFFIX)
        assert (caught.value.param, caught.value.code) == ("suffix", "unsupported")


def test_the_family_states_how_it_is_decoded(llm):
    strategy, spec = llm.state.strategy, llm.state.config.spec
    assert (type(strategy).__name__, strategy.initial_masks, strategy.delete_right) == ("DreamOn", 3, False)
    assert strategy.expand_token_id == spec.mask_id + 3 and not strategy.refusal(spec, probe(spec))
