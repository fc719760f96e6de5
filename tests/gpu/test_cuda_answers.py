"""The embedded models answer on a CUDA device what they answer on a CPU, under every strategy."""

from operator import eq

import pytest

from dlstep import LLM, SamplingParams, tiny
from training.stories import score

pytestmark = pytest.mark.gpu
LIMIT = SamplingParams(max_tokens=64)
# Every strategy, and the exact variants of those that read what older tokens stored.
DECODERS = {
    "multi_bd": {"decoding_strategy": "multi_bd"},
    "edit": {"decoding_strategy": "multi_bd", "sampling_mode": "edit"},
    "d2f": {"decoding_strategy": "d2f"},
    "dmax": {"decoding_strategy": "dmax"},
    "fast_dllm_v2": {"decoding_strategy": "fast_dllm_v2"},
    "fast_dllm_v2, no block cache": {"decoding_strategy": "fast_dllm_v2", "fdv2_use_block_cache": False},
    "dual_cache": {"decoding_strategy": "dual_cache"},
    "dual_cache, none": {"decoding_strategy": "dual_cache", "cache": "none"},
    "diffusion_gemma": {"decoding_strategy": "diffusion_gemma"},
}
EXACT = [name for name in DECODERS if name not in ("fast_dllm_v2", "dual_cache")]


def answers(count, seed, params=LIMIT, **options):
    """Tokens of the answers to held-out problems."""
    prompts = [problem.prompt for problem in tiny.problems(count, seed=seed)]
    return [output.token_ids for output in LLM(**options).generate(prompts, params)]


@pytest.mark.parametrize("name", DECODERS)
def test_fp32_answers_equal_those_of_the_cpu(name, cuda_device):
    there = answers(64, 3, device=cuda_device, dtype="float32", **DECODERS[name])
    assert there == answers(64, 3, device="cpu", **DECODERS[name])


@pytest.mark.parametrize("name", ["multi_bd", "d2f", "dual_cache, none", "fast_dllm_v2, no block cache"])
def test_constrained_fp32_answers_equal_those_of_the_cpu(name, cuda_device):
    params = SamplingParams(max_tokens=48, regex="[0-9+=. a-zA-Z]{20,40}")
    there = answers(32, 3, params, device=cuda_device, dtype="float32", **DECODERS[name])
    assert there == answers(32, 3, params, device="cpu", **DECODERS[name])


@pytest.mark.parametrize("name", DECODERS)
def test_bf16_answers_are_nearly_as_often_right(name, cuda_device, report):
    """Rounding may send an answer another way, which must not be a worse one: at most 6 of 64 fewer are right."""
    problems = tiny.problems(64, seed=3)
    prompts = [problem.prompt for problem in problems]
    right = []
    tokens = []
    for dtype in ("bfloat16", "float32"):
        outputs = LLM(device=cuda_device, dtype=dtype, **DECODERS[name]).generate(prompts, LIMIT)
        right.append(sum(score(one, output.text).answer for one, output in zip(problems, outputs, strict=True)))
        tokens.append([output.token_ids for output in outputs])
    same = sum(map(eq, *tokens))
    report(f"{name}: {right[0]} of 64 right in bf16, {right[1]} in fp32, {same} with equal tokens")
    assert right[0] >= right[1] - 6


@pytest.mark.parametrize("name", EXACT)
def test_preemption_and_chunks_change_nothing(name, cuda_device):
    device = {"device": cuda_device, "dtype": "float32"}
    few = {"max_model_len": 128, "page_size": 4, "num_pages": 40, "max_num_batched_tokens": 136}
    assert answers(32, 5, **device, **few, **DECODERS[name]) == answers(32, 5, **device, **DECODERS[name])
