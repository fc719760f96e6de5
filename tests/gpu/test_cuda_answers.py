"""The embedded models answer on a CUDA device what they answer on a CPU, under every strategy."""

from typing import Any

import pytest

from dlstep import LLM, SamplingParams, tiny

pytestmark = pytest.mark.gpu
LIMIT = SamplingParams(max_tokens=64)
# Every strategy, and the exact variants of those that read what older tokens stored.
DECODERS: dict[str, dict[str, Any]] = {
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


def answers(count: int, seed: int, **options: Any) -> list[tuple[int, ...]]:
    """Tokens of the answers to held-out problems."""
    prompts = [problem.prompt for problem in tiny.problems(count, seed=seed)]
    return [output.token_ids for output in LLM(**options).generate(prompts, LIMIT, progress=False)]


@pytest.mark.parametrize("name", DECODERS)
def test_fp32_answers_equal_those_of_the_cpu(name: str, cuda_device: str) -> None:
    there = answers(64, 3, device=cuda_device, dtype="float32", **DECODERS[name])
    assert there == answers(64, 3, device="cpu", **DECODERS[name])


@pytest.mark.parametrize("name", DECODERS)
def test_bf16_answers_are_mostly_those_of_fp32(name: str, cuda_device: str, capsys: pytest.CaptureFixture[str]) -> None:
    half = answers(64, 3, device=cuda_device, dtype="bfloat16", **DECODERS[name])
    full = answers(64, 3, device=cuda_device, dtype="float32", **DECODERS[name])
    same = sum(one == two for one, two in zip(half, full, strict=True))
    with capsys.disabled():
        print(f"\n{name}: {same} of {len(full)} answers in bf16 are those in fp32")
    assert same >= len(full) / 2


@pytest.mark.parametrize("name", EXACT)
def test_preemption_and_chunks_change_nothing(name: str, cuda_device: str) -> None:
    device = {"device": cuda_device, "dtype": "float32"}
    few = {"max_model_len": 128, "page_size": 4, "num_pages": 40, "max_num_batched_tokens": 136}
    assert answers(32, 5, **device, **few, **DECODERS[name]) == answers(32, 5, **device, **DECODERS[name])
