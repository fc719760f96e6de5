"""Self-speculation against autoregressive decoding, with the embedded joint model: a real network in float32.

A verifying pass multiplies matrices of other shapes than a pass over one row, so rounding differs.
Answers may differ only where the logits of the two best ids, with their noise, are closer than `CLOSE`.
"""

import math
from functools import cache

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from dlstep import LLM, SamplingParams, tiny
from dlstep.core.draws import key, token_uniform
from dlstep.engine.strategy_choice import embedded_facts

MODEL = "tiny-joint"
CLOSE = 1e-4
COUNTS = [40, pytest.param(500, marks=pytest.mark.stress)]
PARAMS = {
    "greedy": SamplingParams(max_tokens=48),
    "temperature 0.7": SamplingParams(max_tokens=48, temperature=0.7, seed=5),
    "temperature 1.0": SamplingParams(max_tokens=48, temperature=1.0, seed=6),
    "filters": SamplingParams(max_tokens=48, temperature=1.0, top_p=0.9, top_k=20, min_p=0.01, seed=7),
    "stops": SamplingParams(max_tokens=48, temperature=0.7, stop=("shells", "has 9"), max_repetition_run=2, seed=8),
}
ENGINES = {
    "alone": {"max_num_reqs": 1},
    "few pages": {"max_num_reqs": 16, "page_size": 4, "max_model_len": 160, "num_pages": 100},
}


@cache
def prompts(count):
    tokenizer = AutoTokenizer.from_pretrained(tiny.path(MODEL))
    return tuple(tuple(tokenizer.encode(problem.prompt + "\n")) for problem in tiny.problems(count, seed=21))


@cache
def plain(count, name):
    llm = LLM(MODEL, decoding_strategy="autoregressive", dtype="float32")
    return llm.generate(list(prompts(count)), PARAMS[name])


def answers(count, name, **options):
    llm = LLM(MODEL, decoding_strategy="self_speculation", dtype="float32", **options)
    return llm.generate(list(prompts(count)), PARAMS[name])


def margin(ids, params):
    """The difference between the logits of the two best ids after `ids`, with their noise."""
    mask_id = embedded_facts()[MODEL]["mask_token_id"]
    network = AutoModelForCausalLM.from_pretrained(tiny.path(MODEL), dtype=torch.float32)
    with torch.no_grad():
        logits = network(torch.tensor([ids])).logits[0, -1]
    logits[mask_id] = -math.inf
    if params.temperature:
        draw = key(params.seed or 0, len(ids), 0, "sample")
        noise = torch.tensor([-math.log(-math.log(token_uniform(draw, index))) for index in range(len(logits))])
        logits = logits / params.temperature + noise
    best, second = logits.topk(2).values.tolist()
    return best - second


def differing(ours, theirs, params):
    """Check that answers differ only where the choice was close; return how many differ."""
    count = 0
    for prompt, one, other in zip(prompts(len(ours)), ours, theirs, strict=True):
        if (one.token_ids, one.finish_reason) != (other.token_ids, other.finish_reason):
            pairs = enumerate(zip(one.token_ids, other.token_ids, strict=False))
            same = next((index for index, (a, b) in pairs if a != b), min(len(one.token_ids), len(other.token_ids)))
            assert margin((*prompt, *other.token_ids[:same]), params) < CLOSE, (one.text, other.text)
            count += 1
    return count


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", PARAMS)
@pytest.mark.parametrize("count", COUNTS)
def test_answers_are_those_of_autoregressive_decoding(name, engine, count, report):
    if engine == "alone" and count < 500 and name != "temperature 1.0":
        pytest.skip("one request at a time is slow: `make stress` runs it with all parameters")
    ours, theirs = answers(count, name, **ENGINES[engine]), plain(count, name)
    others = differing(ours, theirs, PARAMS[name])
    assert others <= max(1, count // 500)
    report(f"self_speculation, {name}, {engine}: {count} answers, {others} differ from autoregressive decoding")
    assert sum(output.nfe for output in ours) < 0.7 * sum(output.nfe for output in theirs)
