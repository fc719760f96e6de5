"""Streams, calls and threads of one `LLM` share its forward passes; each receives its own answer only."""

import gc
import os
import signal
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from dlstep import LLM, Config, DlstepError, SamplingParams, SpanSamples, init
from dlstep.core import SequenceState
from dlstep.core.draws import mix
from dlstep.engine.loader import LoadedEngine
from dlstep.strategies import load
from dlstep.testing.scripted import ScriptedDriver
from training.tokenizer import build_tokenizer

from ...helpers.shadow_llm import make_llm, spec

PARAMS = SamplingParams(max_tokens=40, ignore_eos=True)
SHORT = SamplingParams(max_tokens=12, ignore_eos=True)


class Watched:
    """A driver that counts its forward passes and calls `before` before each."""

    def __init__(self, driver):
        self.driver, self.runs = driver, 0
        self.before = lambda: None

    def run(self, plan):
        self.runs += 1
        self.before()
        return self.driver.run(plan)


def watched_llm(**options):
    """A shadow LLM, and its driver."""
    llm = make_llm(wrap=Watched, **options)
    return llm, llm.engine.driver


def left_over(llm):
    """Requests that run or wait, pages that are owned, and callers that are still told of something."""
    state = llm.state
    return len(state.running), len(state.waiting), len(state.cache.owners), len(llm._shared._callers)


def said_by_child(llm):
    """Fork this process, and return how a call of the LLM ends in the child."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer versions of Python warn of threads
        reading, writing = os.pipe()
        child = os.fork()
    if not child:
        signal.alarm(20)  # the child ends if it hangs
        try:
            said = llm.generate("two", SHORT)[0].finish_reason or ""
        except DlstepError as error:
            said = str(error)
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as pipe:
        return pipe.read()


def test_a_forked_child_answers_unless_a_pass_was_running():
    llm, driver = watched_llm()
    running, free = threading.Event(), threading.Event()

    def before():
        running.set()
        if threading.current_thread() is thread:
            free.wait()

    driver.before = before
    thread = threading.Thread(target=llm.generate, args=("one", SHORT))
    thread.start()
    running.wait()
    assert "forked while another thread ran a forward pass" in said_by_child(llm)
    free.set()
    thread.join()
    assert said_by_child(llm) == "length"


def test_two_streams_take_the_forwards_of_a_batch_of_two():
    llm, driver = watched_llm()
    expected = [output.text for output in llm.generate(["one", "two"], PARAMS)]
    of_batch, driver.runs = driver.runs, 0
    llm, driver = watched_llm()
    streams, pieces = [llm.stream("one", PARAMS), llm.stream("two", PARAMS)], ["", ""]
    under_way = [0, 1]
    while under_way:
        for number in tuple(under_way):
            piece = next(streams[number], None)
            if piece is None:
                under_way.remove(number)
            else:
                pieces[number] += piece
    assert pieces == expected
    assert driver.runs == of_batch
    assert left_over(llm) == (0, 0, 0, 0)


def test_a_stream_waits_from_its_call_on():
    llm, driver = watched_llm()
    stream = llm.stream("one", PARAMS)
    assert len(llm.state.waiting) == 1 and driver.runs == 0
    expected = make_llm().generate("two", PARAMS)[0]
    assert llm.generate("two", PARAMS)[0].token_ids == expected.token_ids
    runs = driver.runs
    assert "".join(stream) == make_llm().generate("one", PARAMS)[0].text
    assert driver.runs <= runs + 1, "the stream took part in the forward passes of the call"


@pytest.mark.parametrize("collected", [False, True])
@pytest.mark.parametrize("pieces", [0, 1])
def test_an_abandoned_stream_aborts(collected, pieces):
    llm = make_llm()
    other, gone = llm.stream("other", PARAMS), llm.stream("gone", PARAMS)
    got = [next(other)]
    for _ in range(pieces):
        next(gone)
    if not collected:
        gone.close()
    del gone
    gc.collect()
    assert len(llm.state.running) + len(llm.state.waiting) == 1
    assert "".join([*got, *other]) == make_llm().generate("other", PARAMS)[0].text
    assert left_over(llm) == (0, 0, 0, 0)


@pytest.mark.parametrize("by_session", [False, True])
def test_a_stream_is_collected_during_a_forward(by_session):
    llm, driver = watched_llm()
    streams, found = [llm.stream(f"gone {number}", PARAMS) for number in range(3)], []

    def drop():
        if driver.runs in (2, 3, 4):
            streams.pop()
            gc.collect()

    def answer():
        if not by_session:
            found.extend(llm.generate("other", PARAMS))
            return
        session = llm.session()
        session.submit("other", PARAMS)
        session.run()
        found.append(session.output(0))

    driver.before = drop
    thread = threading.Thread(target=answer, daemon=True)  # the step that collects must not wait for itself
    thread.start()
    thread.join(60)
    assert [output.token_ids for output in found] == [make_llm().generate("other", PARAMS)[0].token_ids]
    assert not streams and left_over(llm) == (0, 0, 0, 0)


class Mishap(RuntimeError):
    """The error of a driver in some forward passes."""


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.full)])
def test_400_requests_of_8_threads(seed):
    """Each answer is that of a request alone, although an error in one thread ends the requests of all."""
    prompts = [f"{number} and {number % 7}" * (1 + number % 3) for number in range(40)]
    lone = make_llm(max_num_reqs=1)
    expected = {prompt: lone.generate(prompt, SHORT)[0] for prompt in prompts}
    llm, driver = watched_llm(max_num_reqs=16, num_pages=160)

    def mishap():
        time.sleep(0.0005)  # so that other threads come in
        if driver.runs % 25 == 0:
            raise Mishap

    driver.before = mishap
    wrong = []
    ended = []

    def answered(number):
        """Ask for ten answers, in one of several ways; how many came."""
        random = Random(f"{seed}/{number}")
        asked = [random.choice(prompts) for _ in range(10)]
        got = []
        while len(got) < len(asked):
            try:
                if random.random() < 0.2:
                    next(llm.stream(random.choice(prompts), SHORT))  # left at once
                if random.random() < 0.5:
                    rest = asked[len(got) : len(got) + random.choice((1, 3))]
                    got += zip(rest, [output.text for output in llm.generate(rest, SHORT)], strict=True)
                else:
                    prompt = asked[len(got)]
                    got.append((prompt, "".join(llm.stream(prompt, SHORT))))
            except Mishap:
                ended.append("its own")
            except DlstepError as error:
                assert "Mishap" in str(error)
                ended.append("another thread's")
        wrong.extend(prompt for prompt, text in got if text != expected[prompt].text)
        return len(got)

    with ThreadPoolExecutor(8) as threads:
        total = sum(threads.map(answered, range(40)))
    assert total == 400 and not wrong
    assert {*ended} == {"its own", "another thread's"}
    gc.collect()
    assert left_over(llm) == (0, 0, 0, 0)


def test_threads_take_turns():
    """A stream in one thread gets pieces while another thread runs a long call."""
    llm, driver = watched_llm()
    driver.before = lambda: time.sleep(0.001)
    passes = []
    began, ended = threading.Event(), threading.Event()

    def call():
        llm.generate(["long"] * 4, SamplingParams(max_tokens=100, ignore_eos=True))
        ended.set()

    thread = threading.Thread(target=call)
    stream = llm.stream("one", PARAMS)
    next(stream)
    thread.start()
    for _ in stream:
        began.set()
        passes.append(driver.runs)
    assert began.is_set() and not ended.is_set(), "the stream waited for the whole call"
    assert len({*passes}) > 3
    thread.join(60)
    assert ended.is_set()


def hashed_rows(span):
    """A token and a probability for each sampled position, by position."""
    tokens = tuple([3 + mix(position) % 20 for position in span.wanted.sampled])
    return SpanSamples(tokens, tuple([0.95 if mix(position + 9) % 4 == 0 else 0.4 for position in span.wanted.sampled]))


def long_llm(length, tokenizer=None):
    """An LLM on a scripted driver, for one answer of `length` tokens at a time."""
    config = Config(spec(), 32, 4 * (length // 32 + 4), length + 64, 4096, 4)
    return LLM.of(
        LoadedEngine(
            init(config, load("multi_bd")(block_size=8)), ScriptedDriver(hashed_rows), tokenizer or build_tokenizer(), "long"
        )
    )


class CountingTokenizer:
    """A tokenizer that counts the ids it decodes."""

    def __init__(self):
        self.inner, self.decoded = build_tokenizer(), 0

    def encode(self, text, **options):
        return self.inner.encode(text, **options)

    def decode(self, ids, **options):
        self.decoded += len(ids)
        return self.inner.decode(ids, **options)

    def __getattr__(self, name):
        return getattr(self.inner, name)


def test_a_step_of_a_stream_costs_the_same_however_long_the_answer(monkeypatch):
    looked = 0
    tokens = SequenceState.tokens

    def counted(self, start, end):
        nonlocal looked
        looked += max(0, end - start)
        return tokens(self, start, end)

    monkeypatch.setattr(SequenceState, "tokens", counted)
    tokenizer = CountingTokenizer()
    llm = long_llm(3000, tokenizer)
    stream = llm.stream("one", SamplingParams(max_tokens=2900, ignore_eos=True))
    costs = []
    steps = llm.state.step
    while next(stream, None) is not None and llm.state.step < 10_000:
        costs.append(looked + tokenizer.decoded)
        steps = llm.state.step
    third = len(costs) // 4
    early, late = costs[third] - costs[0], costs[-2] - costs[-2 - third]
    assert steps > 500 and third > 50
    assert late <= 1.3 * early, f"{early} positions looked at in the first quarter, {late} in the last one"


@pytest.mark.full
def test_memory_does_not_grow_with_the_requests_served():
    llm = long_llm(64)
    counts = []
    for _ in range(3):
        for number in range(40):
            llm.generate(f"question {number}", SHORT)
            "".join(llm.stream(f"question {number}", SHORT))
        gc.collect()
        counts.append(len(gc.get_objects()))
    assert counts[2] - counts[1] < 80, counts  # less than one for each request
    assert left_over(llm) == (0, 0, 0, 0)
