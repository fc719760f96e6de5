"""Forwards that raise, in calls, streams and sessions: a session loses nothing, and later answers are those without faults."""

from random import Random

import pytest

from dlstep import DlstepError, SamplingParams

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

    def __init__(self, driver):
        self.driver, self.random, self.share, self.raised = driver, Random(0), 0.0, 0

    def run(self, plan):
        mood = self.random.random()
        if mood < self.share / 2:
            self._complain()
        samples = self.driver.run(plan)
        if mood > 1 - self.share / 2:
            self._complain()
        return samples

    def _complain(self):
        self.raised += 1
        raise self.random.choice(FAULTS)


def moody_llm(strategy, seed):
    """An LLM whose prompts take several forwards, and its driver."""
    llm = make_llm(strategy, wrap=Moody, max_num_batched_tokens=160 if strategy == "d2f" else 40)
    driver = llm.engine.driver
    assert isinstance(driver, Moody)
    driver.random, driver.share = Random(seed), 0.3
    return llm, driver


def expected(strategy):
    """The answers of an engine without faults, one at a time."""
    llm = make_llm(strategy, max_num_reqs=1)
    return [llm.generate(*question)[0].token_ids for question in zip(PROMPTS, PARAMS, strict=True)]


@pytest.fixture(params=["multi_bd", "multi_bd_edit", "dmax", "d2f"], scope="module")
def strategy(request):
    """A strategy that answers a request the same when its pages are computed anew."""
    return request.param


def unharmed_step(session):
    """A step; if it raises, the session is what it was."""
    before = session.state, session.samples, session.trace.events
    try:
        session.step()
    except (RuntimeError, MemoryError, KeyboardInterrupt, SystemExit):
        assert (session.state, session.samples, session.trace.events) == before


@pytest.mark.parametrize("seed", range(3))
def test_faults_in_sessions(strategy, seed):
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
def test_faults_in_calls_and_streams(strategy, seed):
    """A fault ends the call and all streams; what is asked for again is answered right."""
    llm, driver = moody_llm(strategy, seed)
    due, driver.share = expected(strategy), 0.02
    answered = [False] * 4
    while not (all(answered) and driver.raised):
        streams, pieces, faults = [llm.stream(*asked) for asked in zip(PROMPTS, PARAMS, strict=True)], [""] * 3, driver.raised
        try:
            for number, stream in enumerate(streams):
                pieces[number] += next(stream)
            outputs = llm.generate(PROMPTS, PARAMS)
            assert [output.token_ids for output in outputs] == due
            answered[3] = True
            for number, stream in enumerate(streams):
                pieces[number] += "".join(stream)
                assert stream.output.token_ids == due[number] and pieces[number] == stream.output.text
                answered[number] = True
        except (RuntimeError, MemoryError, KeyboardInterrupt, SystemExit):
            assert llm.state.done and not llm.state.cache.owners
            for stream in streams:
                with pytest.raises((StopIteration, DlstepError)):
                    while True:
                        next(stream)
            assert driver.raised == faults + 1
    assert llm.state.done and not llm.state.cache.owners
