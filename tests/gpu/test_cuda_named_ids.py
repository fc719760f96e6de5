"""Scored ids on a CUDA device: their probabilities from logits and from hidden states, launched one by one and in graphs."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from dlstep import LLM, SamplingParams, tiny
from dlstep_kernels import SamplerConfig, Settings, head_and_sample
from dlstep_kernels.sampling import Noise

from ..helpers.naming import Loyal, NamingGrid

pytestmark = pytest.mark.gpu
LIMIT = SamplingParams(max_tokens=48)
WARM = SamplingParams(max_tokens=48, temperature=0.7, seed=5)
FILTERED = SamplingParams(max_tokens=48, temperature=0.7, top_p=0.9, seed=5)


def outputs(device: str, dtype: str, params: SamplingParams, *, eager: bool) -> list[Any]:
    prompts = [problem.prompt for problem in tiny.problems(16, seed=9)]
    strategy = NamingGrid(rule=Loyal(0.5))
    options: dict[str, Any] = {"decoding_strategy": strategy} | (
        {"enforce_eager": True} if eager else {"capture_graphs": "lazy"}
    )
    llm = LLM(device=device, dtype=dtype, max_num_reqs=6, **options)
    found = llm.generate(prompts, params, progress=False)
    driver: Any = llm.engine.driver
    assert bool(driver.graph_count) == (device == "cuda" and not eager and params is not FILTERED)
    return found


@pytest.mark.parametrize("params", [LIMIT, WARM, FILTERED], ids=["greedy", "warm", "filtered"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_graphs_change_nothing(dtype: str, params: SamplingParams, cuda_device: str) -> None:
    assert outputs(cuda_device, dtype, params, eager=True) == outputs(cuda_device, dtype, params, eager=False)


def test_fp32_answers_equal_those_of_the_cpu(cuda_device: str) -> None:
    there, here = outputs(cuda_device, "float32", LIMIT, eager=False), outputs("cpu", "float32", LIMIT, eager=True)
    assert [each.token_ids for each in there] == [each.token_ids for each in here]


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("rows", [1, 40, 200])
def test_scored_ids_have_the_softmax_of_the_head(rows: int, temperature: float, cuda_device: str) -> None:
    """Padding after `filled` rows changes nothing, nor does scoring ids; the sampled id has the probability of its draw."""
    generator = torch.Generator(cuda_device).manual_seed(rows)
    hidden = torch.randint(-8, 9, (rows, 1024), device=cuda_device, generator=generator).div(16).to(torch.bfloat16)
    weight = torch.randint(-8, 9, (50_000, 1024), device=cuda_device, generator=generator).div(64).to(torch.bfloat16)
    place = torch.arange(rows, device=cuda_device)
    settings = Settings(torch.full((rows,), temperature, device=cuda_device), noise=Noise(place, place, place))
    options: dict[str, Any] = {"vocab_size": 49_999, "mask_id": 7, "sampler": SamplerConfig(best=2)}
    plain = head_and_sample(hidden, weight, settings, **options)
    ids = torch.randint(8, 49_999, (rows, 8), device=cuda_device, generator=generator)
    assert plain.best_ids is not None and plain.best_probabilities is not None
    ids[:, 0], ids[:, 1], ids[:, 2], ids[:, 3:5], ids[:, 5] = plain.tokens, -1, 7, plain.best_ids, 49_999
    filled = torch.tensor([max(1, rows - 3)], device=cuda_device)
    drawn = head_and_sample(hidden, weight, replace(settings, scored_ids=ids), **options)
    fewer = head_and_sample(hidden, weight, replace(settings, scored_ids=ids), filled=filled, **options)
    found = drawn.scored_probabilities
    assert found is not None and fewer.scored_probabilities is not None
    assert torch.equal(drawn.tokens, plain.tokens) and torch.equal(drawn.probabilities, plain.probabilities)
    assert torch.equal(found[: int(filled)], fewer.scored_probabilities[: int(filled)])
    assert torch.equal(found[:, 0], plain.probabilities)
    assert not found[:, [1, 2, 5]].any()
    torch.testing.assert_close(found[:, 3:5], plain.best_probabilities, atol=1e-6, rtol=1e-5)
    logits = hidden.double() @ weight.double().T
    logits[:, 7], logits[:, 49_999:] = -torch.inf, -torch.inf
    shares = (logits / (temperature or 1.0)).softmax(1)
    torch.testing.assert_close(found[:, 6:].double(), shares.gather(1, ids[:, 6:]), atol=1e-6, rtol=1e-4)
