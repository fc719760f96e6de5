"""Ctrl-C at random moments of calls, streams and steps of a session: the call ends, pages are free, the next one answers."""

import gc
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from types import FrameType

import pytest

from dlstep import LLM, SamplingParams, Session

from ...helpers.shadow_llm import make_llm

PROMPTS = ("Max has 53 shells.", "Max has 53 shells. Later Max buys 39 more.", "another")
PARAMS = SamplingParams(max_tokens=14, temperature=1.0, seed=4, ignore_eos=True)
LONGEST = 0.03  # seconds until an interrupt


class Interrupted(KeyboardInterrupt):
    """Ctrl-C from this file: pytest does not take it for the user's."""


@pytest.fixture(autouse=True)
def interrupts() -> Iterator[None]:
    """Let a signal raise Interrupted in the main thread, as SIGINT raises KeyboardInterrupt."""

    def handler(number: int, frame: FrameType | None) -> None:
        raise Interrupted

    callbacks = [*gc.callbacks]  # of Hypothesis: Python ignores what is raised in one
    gc.callbacks.clear()
    before = signal.signal(signal.SIGUSR1, handler)
    yield
    signal.signal(signal.SIGUSR1, before)
    gc.callbacks.extend(callbacks)


def until_interrupted(call: Callable[[], object], seconds: float) -> None:
    """Repeat a call until the interrupt that comes after some seconds ends it."""

    def interrupt() -> None:
        time.sleep(seconds)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    thread = threading.Thread(target=interrupt, daemon=True)
    deadline = time.monotonic() + 60
    try:
        thread.start()
        while time.monotonic() < deadline:
            call()
    except Interrupted:
        thread.join()
        return
    raise AssertionError("an interrupt was swallowed")


def uses(llm: LLM, session: Session) -> list[Callable[[], object]]:
    """Calls on an LLM, also of two open streams, and steps of a session."""
    streams = [llm.stream(PROMPTS[0], PARAMS), llm.stream_drafts(PROMPTS[1], PARAMS)]
    for stream in streams:
        next(stream)

    def stepped() -> None:
        if session.state.done:
            session.submit(PROMPTS[2], PARAMS)
        session.step()

    def read() -> None:
        for stream in streams:
            next(stream, None)
        llm.generate(PROMPTS[2], PARAMS, progress=False)

    return [stepped, read, partial(llm.generate, PROMPTS, PARAMS, progress=False), lambda: [stepped(), read()]]


def check_interrupts(moments: int) -> None:
    """Interrupt an LLM that threads, streams and a session use, and compare with a fresh one after each interrupt."""
    expected = [output.token_ids for output in make_llm().generate(PROMPTS, PARAMS, progress=False)]
    random, llm = Random(moments), make_llm()
    session = llm.session()
    for moment in range(moments):
        calls = uses(llm, session)
        until_interrupted(calls[moment % len(calls)], random.uniform(0.0, LONGEST))
        del calls
        assert llm.state.done and not llm.state.cache.owners
        assert session.trace.replay() == session.state
        assert [output.token_ids for output in llm.generate(PROMPTS, PARAMS, progress=False)] == expected
        session.run()
        assert all(session.output(each).token_ids == expected[2] for each in session.state.finished)
        assert not session.state.cache.owners
        if moment % 20 == 19:
            session = llm.session()


def test_interrupts_at_100_moments() -> None:
    check_interrupts(100)


@pytest.mark.stress
def test_interrupts_at_2000_moments() -> None:
    check_interrupts(2000)
