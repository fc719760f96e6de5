"""Accuracy of the embedded models on held-out problems, printed and checked: on 100, and on 500 by `make stress`."""

from functools import cache

import pytest

from dlstep import LLM, EngineConfig, SamplingParams, strategies, tiny
from dlstep.engine.strategy_choice import embedded_models_for
from training.stories import score

LIMIT = SamplingParams(max_tokens=64)
COUNTS = [100, pytest.param(500, marks=pytest.mark.stress)]


@cache
def answers(strategy, count, **options):
    """Outputs of all problems, greedy where the strategy lets a request choose."""
    llm = LLM(decoding_strategy=strategy, **options)
    return llm.generate([problem.prompt for problem in tiny.problems(count, seed=0)], LIMIT)


def measured(strategy, count, **options):
    """Share of right answers in percent, tokens per forward pass, and forward passes per answer."""
    outputs = answers(strategy, count, **options)
    scored = zip(tiny.problems(count, seed=0), outputs, strict=True)
    right = [score(problem, output.text).answer for problem, output in scored]
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


def test_every_strategy_with_an_embedded_model_is_measured():
    assert set(LEAST) == {name for name in strategies.available() if embedded_models_for(EngineConfig(decoding_strategy=name))}


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("strategy", LEAST)
def test_accuracy_by_default(strategy, count, report):
    right, rate, forwards = measured(strategy, count)
    report(f"{count} problems, {strategy}: {right:.1f} % right, {rate:.2f} tokens per forward pass, {forwards:.1f} passes")
    least_right, least_rate = LEAST[strategy]
    assert right >= least_right and rate >= least_rate
