"""Accuracy of the embedded models on held-out problems, printed and checked: on 100, and on 500 by `make stress`."""

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from dlstep import LLM, EngineConfig, Output, SamplingParams, strategies, tiny
from dlstep.engine.config import embedded_models_for

LIMIT = SamplingParams(max_tokens=64)
COUNTS = [100, pytest.param(500, marks=pytest.mark.stress)]


@cache
def answers(strategy: str, count: int, **options: Any) -> list[Output]:
    """Outputs of all problems, greedy where the strategy lets a request choose."""
    llm = LLM(decoding_strategy=strategy, **options)
    return llm.generate([problem.prompt for problem in tiny.problems(count, seed=0)], LIMIT, progress=False)


def measured(strategy: str, count: int, **options: Any) -> tuple[float, float, float]:
    """Share of right answers in percent, tokens per forward pass, and forward passes per answer."""
    outputs = answers(strategy, count, **options)
    scored = zip(tiny.problems(count, seed=0), outputs, strict=True)
    right = [tiny.score(problem, output.text).answer for problem, output in scored]
    tokens, forwards = sum(len(output.token_ids) for output in outputs), sum(output.nfe for output in outputs)
    return 100 * sum(right) / count, tokens / forwards, forwards / count


# By default options: least share of right answers in percent, least tokens per forward pass.
LEAST = {
    "multi_bd": (90.0, 3.0),
    "d2f": (90.0, 2.0),
    "multi_bd_edit": (85.0, 1.0),
    "dmax": (85.0, 1.0),
    "fast_dllm_v2": (85.0, 1.0),
    "causal_blocks": (85.0, 1.0),
    "self_speculation": (95.0, 2.0),
    "autoregressive": (95.0, 0.9),
    "dual_cache": (85.0, 1.0),
    "diffusion_gemma": (70.0, 0.5),
}


def test_every_strategy_with_an_embedded_model_is_measured() -> None:
    assert set(LEAST) == {name for name in strategies.available() if embedded_models_for(EngineConfig(decoding_strategy=name))}


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("strategy", LEAST)
def test_accuracy_by_default(strategy: str, count: int, report: Callable[[str], None]) -> None:
    right, rate, forwards = measured(strategy, count)
    report(f"{count} problems, {strategy}: {right:.1f} % right, {rate:.2f} tokens per forward pass, {forwards:.1f} passes")
    least_right, least_rate = LEAST[strategy]
    assert right >= least_right and rate >= least_rate


@pytest.mark.parametrize("count", COUNTS)
def test_several_blocks_cost_no_accuracy(count: int, report: Callable[[str], None]) -> None:
    single, single_rate, _ = measured("multi_bd", count, buffer_size=1)
    multi, multi_rate, _ = measured("multi_bd", count)
    report(
        f"{count} problems, multi_bd: 1 block {single:.1f} % at {single_rate:.2f}, 4 blocks {multi:.1f} % at {multi_rate:.2f}"
    )
    assert single >= 92 and single_rate >= 2.0
    assert multi >= single - 2 and multi_rate >= 3.0


@pytest.mark.parametrize("count", COUNTS)
def test_folding_changes_no_answer_and_saves_a_forward_a_block(count: int, report: Callable[[str], None]) -> None:
    folded, plain = (answers("multi_bd", count, buffer_size=1, **options) for options in ({}, {"fold_commits": False}))
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
    report(
        f"folding saves {saved} forward passes; {stored} blocks were finished on the way, {aligned} prompts end with a block"
    )
    assert abs(saved - stored - aligned) <= 0.02 * (stored + aligned)
