"""Sessions, streams and calls of one `LLM` in turns: each request is answered as if it were alone."""

import pytest

from dlstep import strategies

from .crowd import LEAST_ROWS, Crowd

STRATEGIES = sorted(strategies.available())
ENGINES = {
    "by default": lambda strategy: {},
    "prompts in pieces": lambda strategy: {"max_num_batched_tokens": LEAST_ROWS.get(strategy, 40)},
    "few places": lambda strategy: {"max_sessions": 2, "max_num_batched_tokens": LEAST_ROWS.get(strategy, 120)},
}


def play(crowd, rounds, report):
    """So many rounds and the end: no answer is wrong, no page is owned."""
    for _ in range(rounds):
        crowd.round()
    owned = crowd.end()
    report(
        f"{crowd.strategy}, {rounds} rounds: {crowd.right} answers as given alone, {len(crowd.wrong)} wrong, {crowd.spared} "
        f"that an inexact cache may change, {owned} pages owned at the end"
    )
    assert not crowd.wrong, "\n".join(crowd.wrong[:5])
    assert not owned and crowd.right > crowd.spared


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_crowd_is_answered_as_each_alone(strategy, engine, report):
    play(Crowd(strategy, 7, sessions=3, streams=2, **ENGINES[engine](strategy)), 4, report)


@pytest.mark.stress
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_large_crowd_is_answered_as_each_alone(strategy, engine, report):
    # Two hundred rounds for each strategy, on three engines.
    play(Crowd(strategy, 11, sessions=8, streams=4, **ENGINES[engine](strategy)), 67, report)
