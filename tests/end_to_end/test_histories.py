"""Sessions, streams and calls of one `LLM` in turns: each request is answered as if it were alone."""

import pytest
from crowd import LEAST_ROWS, Crowd, alone, expected, fed_rows, prompts, rebuilt

from dlstep import LLM, SamplingParams, strategies, tiny

STRATEGIES = sorted(strategies.available())
ENGINES = {
    "by default": lambda strategy: {},
    "prompts in pieces": lambda strategy: {"max_num_batched_tokens": LEAST_ROWS.get(strategy, 40)},
    "few places": lambda strategy: {"max_sessions": 2, "max_num_batched_tokens": LEAST_ROWS.get(strategy, 120)},
}


def play(crowd: Crowd, rounds: int) -> None:
    """So many rounds and the end: no answer is wrong, no page is owned."""
    for _ in range(rounds):
        crowd.round()
    owned = crowd.end()
    print(
        f"\n{crowd.strategy}: {crowd.right} answers as given alone, {len(crowd.wrong)} wrong, {crowd.spared} that an inexact "
        f"cache may change, {owned} pages owned at the end"
    )
    assert not crowd.wrong, "\n".join(crowd.wrong[:5])
    assert not owned and crowd.right > crowd.spared


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_crowd_is_answered_as_each_alone(strategy: str, engine: str) -> None:
    play(Crowd(strategy, 7, sessions=3, streams=2, **ENGINES[engine](strategy)), 10)


@pytest.mark.stress
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_large_crowd_is_answered_as_each_alone(strategy: str, engine: str, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        play(Crowd(strategy, 11, sessions=8, streams=4, **ENGINES[engine](strategy)), 200)


def test_prompts_in_pieces_of_two_sessions_are_kept_apart() -> None:
    long = [prompt for prompt in prompts("multi_bd") if 55 <= len(prompt) <= 86]
    params = SamplingParams(max_tokens=24, seed=0)
    llm = LLM(max_num_batched_tokens=40)
    for one, two in zip(long, long[1:] + long[:1], strict=True):
        first, second = llm.session(), llm.session()
        first.submit(one, params)
        second.submit(two, params)
        first.step()
        second.step()
        first.run()
        assert first.output(0).token_ids == expected("multi_bd", (one, params))
        second.run()
        assert second.output(0).token_ids == expected("multi_bd", (two, params))


def test_a_session_between_two_calls_changes_neither() -> None:
    one, two = (problem.prompt for problem in tiny.problems(2, seed=5))
    fresh = alone("multi_bd")
    llm = LLM()
    for prompt, most in ((one, 9), (one, 64), (two, 9)):  # what is asked, and that it is right by itself
        assert fresh.generate(prompt, SamplingParams(max_tokens=most), progress=False)[0].token_ids
    first = llm.generate(one, SamplingParams(max_tokens=9), progress=False)[0]
    session = llm.session()
    session.submit(two, SamplingParams(max_tokens=9))
    session.run()
    second = llm.generate(one, SamplingParams(max_tokens=64), progress=False)[0]
    got = [first.token_ids, session.output(0).token_ids, second.token_ids]
    asked = ((one, 9), (two, 9), (one, 64))
    assert got == [fresh.generate(text, SamplingParams(max_tokens=n), progress=False)[0].token_ids for text, n in asked]


def test_sessions_step_in_any_order() -> None:
    llm = LLM()
    questions = [(prompt, SamplingParams(max_tokens=20, seed=0)) for prompt in prompts("multi_bd")[4:7]]
    sessions = [llm.session() for _ in questions]
    for session, question in zip(sessions, questions, strict=True):
        session.submit(*question)
    for turn in (0, 1, 1, 2, 1, 0, 2, 2, 0):  # not the one that rested longest
        if not sessions[turn].state.done:
            sessions[turn].step()
    for session, question in zip(sessions, questions, strict=True):
        session.run()
        assert session.output(0).token_ids == expected("multi_bd", question)
        assert not rebuilt(session)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_fork_computes_no_prefix_anew(strategy: str) -> None:
    llm = LLM(decoding_strategy=strategy)
    session = llm.session()
    question = prompts(strategy)[9], SamplingParams(max_tokens=64, seed=0, ignore_eos=True)
    session.submit(*question)
    for _ in range(3):
        session.step()
    branch, since = session.fork(), len(session.trace.events)
    for _ in range(2):
        branch.step()
        session.step()
    branch.run()
    session.run()
    assert fed_rows(branch) == fed_rows(session, since)
    assert not rebuilt(branch) and not rebuilt(session)
    assert branch.output(0).token_ids == session.output(0).token_ids == expected(strategy, question)
