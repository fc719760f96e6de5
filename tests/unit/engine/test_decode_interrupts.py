"""Ctrl-C in calls, streams and steps of a session, and at its end: the call ends, pages are free, the next one answers."""

import gc
import signal
import sys
import threading
import time
from dataclasses import replace
from functools import partial
from random import Random

import pytest

from dlstep import LLM, SamplingParams

from ...helpers.shadow_llm import make_llm

PROMPTS = ("Max has 53 shells.", "Max has 53 shells. Later Max buys 39 more.", "another")
PARAMS = SamplingParams(max_tokens=14, temperature=1.0, seed=4, ignore_eos=True)
LONGEST = 0.03  # seconds until an interrupt


class Interrupted(KeyboardInterrupt):
    """Ctrl-C from this file: pytest does not take it for the user's."""


@pytest.fixture(autouse=True)
def interrupts():
    """Let a signal raise Interrupted in the main thread, as SIGINT raises KeyboardInterrupt."""

    def handler(number, frame):
        raise Interrupted

    callbacks = [*gc.callbacks]  # of Hypothesis: Python ignores what is raised in one
    gc.callbacks.clear()
    before = signal.signal(signal.SIGUSR1, handler)
    yield
    signal.signal(signal.SIGUSR1, before)
    gc.callbacks.extend(callbacks)


def until_interrupted(call, seconds):
    """Repeat a call until the interrupt that comes after some seconds ends it."""

    def interrupt():
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


def uses(llm, session):
    """Calls on an LLM, also of two open streams, and steps of a session."""
    streams = [llm.stream(PROMPTS[0], PARAMS), llm.stream_drafts(PROMPTS[1], PARAMS)]
    for stream in streams:
        next(stream)

    def stepped():
        if session.state.done:
            session.submit(PROMPTS[2], PARAMS)
        session.step()

    def read():
        for stream in streams:
            next(stream, None)
        llm.generate(PROMPTS[2], PARAMS)

    return [stepped, read, partial(llm.generate, PROMPTS, PARAMS, progress=False), lambda: [stepped(), read()]]


def check_interrupts(moments):
    """Interrupt an LLM that threads, streams and a session use, and compare with a fresh one after each interrupt."""
    expected = [output.token_ids for output in make_llm().generate(PROMPTS, PARAMS)]
    random, llm = Random(moments), make_llm()
    session = llm.session()
    for moment in range(moments):
        calls = uses(llm, session)
        until_interrupted(calls[moment % len(calls)], random.uniform(0.0, LONGEST))
        del calls
        assert llm.state.done and not llm.state.cache.owners
        assert session.trace.replay() == session.state
        assert [output.token_ids for output in llm.generate(PROMPTS, PARAMS)] == expected
        session.run()
        assert all(session.output(each).token_ids == expected[2] for each in session.state.finished)
        assert not session.state.cache.owners
        if moment % 20 == 19:
            session = llm.session()


def interrupted_at(line, call):
    """Interrupt a call before a line of it in dlstep or weakref, counted from 0. Return whether it has so many lines."""
    left = line

    def trace(frame, event, _):
        nonlocal left
        if not any(part in frame.f_code.co_filename for part in ("dlstep", "weakref")):
            return None
        left -= event == "line"
        if left < 0:
            sys.settrace(None)
            raise Interrupted
        return trace

    sys.settrace(trace)
    try:
        call()
    except Interrupted:
        pass
    finally:
        sys.settrace(None)
    return left < 0


@pytest.mark.parametrize("collects", [pytest.param(False, marks=pytest.mark.full), True])
def test_interrupts_at_every_line_of_the_end_of_a_session(collects, monkeypatch):
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)  # Python reports what is raised in a finalizer
    llm, line, reached = LLM(num_threads=1), 0, True
    generate = partial(llm.generate, PROMPTS[0], replace(PARAMS, max_tokens=4), progress=False)
    expected = [generate()]
    while reached:
        sessions = [llm.session()]
        sessions[0].submit(PROMPTS[1], PARAMS)
        sessions[0].step()
        reached = interrupted_at(line, sessions.clear if collects else sessions[0].close)
        line += 1
        found = []
        thread = threading.Thread(target=lambda found=found: found.append(generate()), daemon=True)
        thread.start()
        thread.join(20)
        assert found == expected, f"after an interrupt before line {line}"
    assert line > 5


def test_interrupts_at_40_moments():
    check_interrupts(40)


@pytest.mark.stress
def test_interrupts_at_2000_moments():
    check_interrupts(2000)
