"""Observations and processors on a CUDA device: those of the passes that graphs run, and answers of the CPU."""

import pytest

from dlstep import LLM, SamplingParams, tiny
from dlstep.core import Samples
from dlstep.processors.repetition_penalty import RepetitionPenalty

pytestmark = pytest.mark.gpu
# Largest allowed difference between an observed probability and that of the pass, by dtype; FP8 pages may increase it.
ERRORS = {"float32": 1e-4, "bfloat16": 0.2}


def params(number):
    """Greedy and random requests in turn, every third with a processor."""
    processors = (RepetitionPenalty(1.5),) if number % 3 == 2 else ()
    return SamplingParams(max_tokens=32, temperature=0.8 * (number % 2), seed=number, processors=processors)


@pytest.mark.parametrize("pages", [None, "fp8"])
@pytest.mark.parametrize("dtype", ERRORS)
@pytest.mark.parametrize("model", ["tiny-bd", "tiny-llada"])
def test_observed_probabilities_are_those_of_the_pass(dtype, model, pages, cuda_device):
    llm = LLM(model, device=cuda_device, dtype=dtype, kv_cache_dtype=pages)
    session = llm.session()
    for number, problem in enumerate(tiny.problems(6, seed=5)):
        session.submit(problem.prompt, params(number))
    worst, other, rows = 0.0, 0, 0
    while not session.state.done:
        seen = session.observe(hidden_states="all", attentions="all").samples
        session.step()
        real = session.trace.events[-1]
        assert isinstance(real, Samples) and seen.plan == real.plan
        for one, two in zip(seen.spans, real.spans, strict=True):
            for number, (token, actual) in enumerate(zip(one.tokens, two.tokens, strict=True)):
                rows += 1
                other += token != actual
                if token == actual:
                    worst = max(worst, abs(one.probabilities[number] - two.probabilities[number]))
    print(
        f"{model} in {dtype}, {pages or dtype} pages: {rows} rows, {other} others, probabilities differ by at most {worst:.1e}"
    )
    assert worst <= ERRORS[dtype] and other <= (0 if dtype == "float32" else rows / 50)


def test_processors_answer_as_on_a_cpu(cuda_device):
    prompts = [problem.prompt for problem in tiny.problems(6, seed=5)]
    every = [params(number) for number in range(6)]
    found, expected = (
        [output.token_ids for output in LLM("tiny-bd", device=device, dtype="float32").generate(prompts, every)]
        for device in (cuda_device, "cpu")
    )
    assert found == expected
