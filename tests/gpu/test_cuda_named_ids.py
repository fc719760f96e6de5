"""Scored ids on a CUDA device: answers of strategies that score some, launched one by one and in graphs."""

import pytest

from dlstep import LLM, SamplingParams, tiny

from ..helpers.naming import Loyal, NamingGrid

pytestmark = pytest.mark.gpu
LIMIT = SamplingParams(max_tokens=48)
WARM = SamplingParams(max_tokens=48, temperature=0.7, seed=5)
FILTERED = SamplingParams(max_tokens=48, temperature=0.7, top_p=0.9, seed=5)


def outputs(device, dtype, params, *, eager):
    prompts = [problem.prompt for problem in tiny.problems(16, seed=9)]
    strategy = NamingGrid(rule=Loyal(0.5))
    options = {"decoding_strategy": strategy} | ({"enforce_eager": True} if eager else {"capture_graphs": "lazy"})
    llm = LLM(device=device, dtype=dtype, max_num_reqs=6, **options)
    found = llm.generate(prompts, params)
    driver = llm.engine.driver
    assert bool(driver.graph_count) == (device == "cuda" and not eager and params is not FILTERED)
    return found


@pytest.mark.parametrize("params", [LIMIT, WARM, FILTERED], ids=["greedy", "warm", "filtered"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_graphs_change_nothing(dtype, params, cuda_device):
    assert outputs(cuda_device, dtype, params, eager=True) == outputs(cuda_device, dtype, params, eager=False)


def test_fp32_answers_equal_those_of_the_cpu(cuda_device):
    there, here = outputs(cuda_device, "float32", LIMIT, eager=False), outputs("cpu", "float32", LIMIT, eager=True)
    assert [each.token_ids for each in there] == [each.token_ids for each in here]
