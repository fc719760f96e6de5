"""Sessions, forks and calls that take turns on one CUDA device answer as each would alone."""

import pytest

from dlstep import LLM, SamplingParams, strategies
from dlstep.tiny import problems

from ..helpers.any_strategy import model_of

BUDGETS = {"d2f": 450, "dual_cache": 450, "diffusion_gemma": 400}


@pytest.mark.gpu
@pytest.mark.parametrize("strategy", strategies.available())
def test_sessions_that_take_turns_answer_as_alone(strategy):
    prompts = [problem.prompt for problem in problems(6)]
    params = SamplingParams(max_tokens=48)
    options = {"device": "cuda", "dtype": "float32", "max_num_batched_tokens": BUDGETS.get(strategy, 160)}
    llm = LLM(model_of(strategy), decoding_strategy=strategy, **options)
    alone = [llm.generate(prompt, params)[0].token_ids for prompt in prompts]
    sessions = [llm.session() for _ in prompts[:4]]
    for session, prompt in zip(sessions, prompts, strict=False):
        session.submit(prompt, params)
    stream = llm.stream(prompts[4], params)
    pieces = 0
    forks = []
    while not all(session.state.done for session in sessions):
        for session in sessions:
            if not session.state.done:
                session.step()
        pieces += next(stream, None) is not None
        if not forks and strategy not in ("fast_dllm_v2", "dual_cache"):
            forks.append(sessions[0].fork())
    for fork in forks:
        fork.run()
        assert fork.output(0).token_ids == alone[0]
        assert fork.output(0).nfe == sessions[0].output(0).nfe, "the fork computed its prefix anew"
    assert [session.output(0).token_ids for session in sessions] == alone[:4]
    assert llm.generate(prompts[5], params)[0].token_ids == alone[5]
    "".join(stream)
    assert stream.output.token_ids == alone[4] and pieces
