"""Whether an answer in bf16 depends on how many others are decoded with it: counted, not required."""

from operator import eq

import pytest

from dlstep import LLM, tiny

from .test_cuda_answers import DECODERS, LIMIT

pytestmark = pytest.mark.gpu
BATCHES = (1, 8, 32)


def answers(batch, dtype, **options):
    """Tokens of the answers to 32 problems, `batch` at a time."""
    prompts = [problem.prompt for problem in tiny.problems(32, seed=7)]
    llm = LLM(device="cuda", dtype=dtype, max_num_reqs=batch, **options)
    return [output.token_ids for output in llm.generate(prompts, LIMIT)]


@pytest.mark.parametrize("name", ["multi_bd", "dmax", "diffusion_gemma"])
def test_answers_at_other_batch_sizes(name, report):
    alone, *together = [answers(batch, "bfloat16", **DECODERS[name]) for batch in BATCHES]
    shares = [sum(map(eq, alone, others)) / len(alone) for others in together]
    told = ", ".join(f"{share:.0%} at batch {batch}" for share, batch in zip(shares, BATCHES[1:], strict=True))
    report(f"{name}: answers in bf16 that equal those at batch 1: {told}")
    assert all(map(len, alone))


def test_fp32_answers_do_not_depend_on_the_batch():
    alone, *together = [answers(batch, "float32", **DECODERS["multi_bd"]) for batch in BATCHES]
    assert all(others == alone for others in together)
