"""Sessions, streams and calls of one `LLM` in turns: each request is answered as if it were alone."""

import pytest

from dlstep import strategies

from .crowd import LEAST_ROWS, Crowd

ENGINES = {
    "by default": lambda strategy: {},
    "prompts in pieces": lambda strategy: {"max_num_batched_tokens": LEAST_ROWS.get(strategy, 40)},
    "few places": lambda strategy: {"max_sessions": 2, "max_num_batched_tokens": LEAST_ROWS.get(strategy, 120)},
}


# Long: 67 rounds for each exact strategy, on three engines.
@pytest.mark.parametrize("sessions, streams, rounds", [(3, 2, 4), pytest.param(8, 4, 67, marks=pytest.mark.stress)])
@pytest.mark.parametrize("strategy", [name for name in strategies.own() if strategies.load(name)().exact])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_crowd_is_answered_as_each_alone(strategy, engine, sessions, streams, rounds, report):
    """So many rounds and the end: no answer is wrong, no page is owned."""
    crowd = Crowd(strategy, 7, sessions=sessions, streams=streams, **ENGINES[engine](strategy))
    for _ in range(rounds):
        crowd.round()
    owned = crowd.end()
    report(
        f"{strategy}, {rounds} rounds: {crowd.right} answers right, {len(crowd.wrong)} wrong, {owned} pages owned at the end"
    )
    assert not crowd.wrong, "\n".join(crowd.wrong[:5])
    assert not owned and crowd.right
