"""The embedded models answer on a CUDA device what they answer on a CPU."""

import pytest

from dlstep import LLM, SamplingParams, tiny

pytestmark = pytest.mark.gpu
LIMIT = SamplingParams(max_tokens=64)


@pytest.mark.parametrize("model", tiny.names())
def test_fp32_answers_equal_those_of_the_cpu(model: str, cuda_device: str) -> None:
    prompts = [problem.prompt for problem in tiny.problems(64, seed=3)]
    there = LLM(model, device=cuda_device, dtype="float32").generate(prompts, LIMIT, progress=False)
    here = LLM(model, device="cpu").generate(prompts, LIMIT, progress=False)
    assert [output.token_ids for output in there] == [output.token_ids for output in here]


@pytest.mark.parametrize("model", tiny.names())
def test_preemption_and_chunks_change_nothing(model: str, cuda_device: str) -> None:
    prompts = [problem.prompt for problem in tiny.problems(32, seed=5)]
    ample = LLM(model, device=cuda_device, dtype="float32").generate(prompts, LIMIT, progress=False)
    short = LLM(
        model, device=cuda_device, dtype="float32", max_model_len=128, page_size=4, num_pages=40, max_num_batched_tokens=128
    )
    assert [output.token_ids for output in short.generate(prompts, LIMIT, progress=False)] == [o.token_ids for o in ample]
