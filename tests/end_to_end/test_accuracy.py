"""What the embedded models can do on 500 held-out problems, printed and checked."""

from functools import cache

import pytest

from dlstep import LLM, Output, SamplingParams, tiny

LIMIT = SamplingParams(max_tokens=64)
COUNT = 500


@cache
def answers(model: str, buffer_size: int, fold_commits: bool = True) -> list[Output]:
    """Outputs of all problems, greedy, accept threshold 0.9."""
    llm = LLM(model, buffer_size=buffer_size, accept_threshold=0.9, fold_commits=fold_commits)
    return llm.generate([problem.prompt for problem in tiny.problems(COUNT, seed=0)], LIMIT, progress=False)


def measured(model: str, buffer_size: int) -> tuple[float, float]:
    """Share of right answers in percent, and tokens per forward."""
    outputs = answers(model, buffer_size)
    scored = zip(tiny.problems(COUNT, seed=0), outputs, strict=True)
    right = [tiny.score(problem, output.text).answer for problem, output in scored]
    tokens, forwards = sum(len(output.token_ids) for output in outputs), sum(output.nfe for output in outputs)
    return 100 * sum(right) / COUNT, tokens / forwards


def test_accuracy_and_tokens_per_forward(capsys: pytest.CaptureFixture[str]) -> None:
    single, single_rate = measured("tiny-bd", 1)
    multi, multi_rate = measured("tiny-bd", 4)
    d2f, d2f_rate = measured("tiny-d2f", 4)
    with capsys.disabled():
        print(f"\n{COUNT} problems, accept 0.9: right answers at tokens per forward")
        print(f"tiny-bd buffer 1 {single:.1f} % at {single_rate:.2f}, buffer 4 {multi:.1f} % at {multi_rate:.2f}")
        print(f"tiny-d2f {d2f:.1f} % at {d2f_rate:.2f}")
    assert single >= 92 and single_rate >= 2.0
    assert multi >= single - 2 and multi_rate >= 3.0
    assert d2f >= 90 and d2f_rate >= 2.0


def test_folding_changes_no_answer_and_saves_a_forward_a_block(capsys: pytest.CaptureFixture[str]) -> None:
    folded, plain = answers("tiny-bd", 1), answers("tiny-bd", 1, fold_commits=False)
    assert [output.token_ids for output in folded] == [output.token_ids for output in plain]
    tokenizer = LLM("tiny-bd").engine.tokenizer
    assert tokenizer is not None
    size = 8
    saved = stored = aligned = 0
    for output, other in zip(folded, plain, strict=True):
        length = len(tokenizer.encode(output.prompt))
        end = length + len(output.token_ids)
        saved += other.nfe - output.nfe
        stored += end // size - length // size  # blocks that were finished before the last one
        aligned += length % size == 0
    with capsys.disabled():
        print(f"\nfolding saves {saved} forwards; {stored} blocks were finished on the way, {aligned} prompts end with a block")
    assert abs(saved - stored - aligned) <= 0.02 * (stored + aligned)
