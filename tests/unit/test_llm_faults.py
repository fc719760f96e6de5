"""Forwards that raise, in calls, streams and sessions: nothing is lost, and answers are those without faults."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from dlstep import LLM, Plan, Samples, SamplingParams, Session
from dlstep.core import Driver

from ..helpers.shadow_llm import make_llm

FAULTS = [RuntimeError("device lost"), MemoryError("out of memory"), KeyboardInterrupt(), SystemExit(3)]
PROMPTS = ["Max has 53 shells.", "Max has 53 shells. Later Max buys 39 more. " * 2, "another"]
PARAMS = [
    SamplingParams(max_tokens=30, ignore_eos=True),
    SamplingParams(max_tokens=20, temperature=1.0, seed=4, ignore_eos=True),
    SamplingParams(max_tokens=9, ignore_eos=True),
]


class Moody:
    """A driver that raises in some forwards, before them or after them."""

    def __init__(self, driver: Driver) -> None:
        self.driver, self.random, self.share, self.raised = driver, Random(0), 0.0, 0

    def run(self, plan: Plan) -> Samples:
        mood = self.random.random()
        if mood < self.share / 2:
            self._complain()
        samples = self.driver.run(plan)
        if mood > 1 - self.share / 2:
            self._complain()
        return samples

    def _complain(self) -> None:
        self.raised += 1
        raise self.random.choice(FAULTS)


def moody_llm(strategy: str, seed: int) -> tuple[LLM, Moody]:
    """An LLM whose prompts take several forwards, and its driver."""
    llm = make_llm(strategy, wrap=Moody, max_num_batched_tokens=160 if strategy == "d2f" else 40)
    driver = llm.engine.driver
    assert isinstance(driver, Moody)
    driver.random, driver.share = Random(seed), 0.3
    return llm, driver


def retried(call: Callable[[], Any]) -> Any:
    """The answer of `call` once no forward raises in it."""
    while True:
        try:
            return call()
        except (RuntimeError, MemoryError, KeyboardInterrupt, SystemExit):
            continue


def expected(strategy: str) -> list[tuple[int, ...]]:
    """The answers of an engine without faults, one at a time."""
    llm = make_llm(strategy, max_num_reqs=1)
    return [llm.generate(*question, progress=False)[0].token_ids for question in zip(PROMPTS, PARAMS, strict=True)]


@pytest.fixture(params=["multi_bd", "multi_bd_edit", "dmax", "d2f"], scope="module")
def strategy(request: pytest.FixtureRequest) -> str:
    """A strategy that answers a request the same when its pages are computed anew."""
    return request.param


def unharmed_step(session: Session) -> None:
    """A step; if it raises, the session is what it was."""
    before = session.state, session.samples, session.trace.events
    try:
        session.step()
    except (RuntimeError, MemoryError, KeyboardInterrupt, SystemExit):
        assert (session.state, session.samples, session.trace.events) == before


@pytest.mark.parametrize("seed", range(3))
def test_faults_in_sessions(strategy: str, seed: int) -> None:
    llm, driver = moody_llm(strategy, seed)
    sessions = [llm.session(), llm.session()]
    for session in sessions:
        for prompt, params in zip(PROMPTS, PARAMS, strict=True):
            session.submit(prompt, params)
    while not all(session.state.done for session in sessions):
        for session in sessions:
            if not session.state.done:
                unharmed_step(session)
    for session in sessions:
        assert [session.output(number).token_ids for number in range(3)] == expected(strategy)
        assert not session.state.cache.owners
        session.trace.replay()
    assert driver.raised


@pytest.mark.parametrize("seed", range(3))
def test_faults_in_calls_and_streams(strategy: str, seed: int) -> None:
    llm, driver = moody_llm(strategy, seed)
    due, driver.share = expected(strategy), 0.5
    streams = [llm.stream(prompt, params) for prompt, params in zip(PROMPTS, PARAMS, strict=True)]
    pieces = ["" for _ in streams]
    for _ in range(4):
        for number, stream in enumerate(streams):
            pieces[number] += retried(lambda stream=stream: next(stream, ""))
    driver.share = 0.05
    outputs = retried(lambda: llm.generate(PROMPTS, PARAMS, progress=False))
    driver.share = 0.3
    assert [output.token_ids for output in outputs] == due
    for number, stream in enumerate(streams):
        while piece := retried(lambda stream=stream: next(stream, "")):
            pieces[number] += piece
        assert stream.output.token_ids == due[number]
        assert pieces[number] == stream.output.text
    assert driver.raised
    state = llm.state
    assert state.done and not state.cache.owners
