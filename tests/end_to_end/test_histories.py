"""Sessions, streams and calls of one `LLM` in turns: each request is answered as if it were alone."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from dlstep import LLM, DlstepError, Plan, Samples, SamplingParams, Session, strategies, tiny
from dlstep.core import CachingDriver
from dlstep.engine.loader import LoadedEngine

from ..helpers.any_strategy import model_of
from .crowd import LEAST_ROWS, Crowd, Question, alone, expected, fed_rows, prompts, rebuilt

STRATEGIES = sorted(strategies.available())
ENGINES = {
    "by default": lambda strategy: {},
    "prompts in pieces": lambda strategy: {"max_num_batched_tokens": LEAST_ROWS.get(strategy, 40)},
    "few places": lambda strategy: {"max_sessions": 2, "max_num_batched_tokens": LEAST_ROWS.get(strategy, 120)},
}


def play(crowd: Crowd, rounds: int, report: Callable[[str], None]) -> None:
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
def test_a_crowd_is_answered_as_each_alone(strategy: str, engine: str, report: Callable[[str], None]) -> None:
    play(Crowd(strategy, 7, sessions=3, streams=2, **ENGINES[engine](strategy)), 4, report)


@pytest.mark.stress
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_large_crowd_is_answered_as_each_alone(strategy: str, engine: str, report: Callable[[str], None]) -> None:
    # Two hundred rounds for each strategy, on three engines.
    play(Crowd(strategy, 11, sessions=8, streams=4, **ENGINES[engine](strategy)), 67, report)


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
    for turn in (0, 1, 1, 2, 1, 0, 2, 2, 0):  # not the least recently used one
        if not sessions[turn].state.done:
            sessions[turn].step()
    for session, question in zip(sessions, questions, strict=True):
        session.run()
        assert session.output(0).token_ids == expected("multi_bd", question)
        assert not rebuilt(session)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_fork_computes_no_prefix_anew(strategy: str) -> None:
    llm = LLM(model_of(strategy), decoding_strategy=strategy)
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


def stored_rows(session: Session, below: int) -> int:
    """Rows of final tokens that the forward passes of a session stored for positions before `below`."""
    plans = [event.plan for event in session.trace.events if isinstance(event, Samples)]
    stored = [(span.rows.start + span.rows.query_only, span.rows.final_rows) for plan in plans for span in plan.spans]
    return sum(max(0, min(start + rows, below) - start) for start, rows in stored)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("engine", ["by default", "prompts in pieces"])
def test_equal_prompts_admitted_together_compute_their_pages_once(strategy: str, engine: str) -> None:
    llm = LLM(model_of(strategy), decoding_strategy=strategy, page_size=8, **ENGINES[engine](strategy))
    prompt = prompts(strategy)[9]
    full = len(prompt) // 32 * 32  # whole pages, and whole blocks of any size
    session = llm.session()
    for number in range(4):
        session.submit(prompt, SamplingParams(max_tokens=4, seed=number))
    session.run()
    lone = llm.session()
    lone.submit(prompt, SamplingParams(max_tokens=4, seed=0))
    lone.run()
    assert stored_rows(session, full) == stored_rows(lone, full)
    assert (stored_rows(lone, full) == full) is (strategy != "dual_cache"), "dual_cache computes all anew for each block"


class Moody:
    """A driver of a network that raises in some forward passes, before or after the network ran."""

    def __init__(self, driver: CachingDriver) -> None:
        self.driver, self.random, self.raised, self.share = driver, Random(0), 0, 0.1
        self.fork, self.release = driver.fork, driver.release

    def run(self, plan: Plan) -> Samples:
        mood = self.random.random()
        if mood < self.share:
            self.complain()
        samples = self.driver.run(plan)
        if mood > 1 - self.share:
            self.complain()
        return samples

    def complain(self) -> None:
        self.raised += 1
        raise self.random.choice((RuntimeError("device lost"), MemoryError(), KeyboardInterrupt()))


@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if strategies.load(name)().exact])
def test_forwards_that_raise_change_no_answer(strategy: str) -> None:
    engine = LLM(model_of(strategy), decoding_strategy=strategy, max_num_batched_tokens=LEAST_ROWS.get(strategy, 120)).engine
    driver = Moody(engine.driver)
    llm = LLM.of(LoadedEngine(engine.first, driver, engine.tokenizer, engine.name))
    questions = [(prompt, SamplingParams(max_tokens=20, seed=0)) for prompt in prompts(strategy)[4:11]]
    sessions = [llm.session() for _ in questions[:3]]
    for session, question in zip(sessions, questions, strict=False):
        session.submit(*question)
    while not all(session.state.done for session in sessions):
        for session in sessions:
            before = session.state
            try:
                before.done or session.step()
            except (RuntimeError, MemoryError, KeyboardInterrupt):
                assert session.state is before
    driver.share, texts = 0.01, list[str]()
    while not texts:  # an error ends all streams
        streams = [llm.stream(*question) for question in questions[3:]]
        try:
            firsts = [next(stream, "") for stream in streams]
            texts = [first + "".join(stream) for first, stream in zip(firsts, streams, strict=True)]
        except (RuntimeError, MemoryError, KeyboardInterrupt):
            with pytest.raises((DlstepError, StopIteration)):
                next(streams[0])
    got = [session.output(0).token_ids for session in sessions] + [stream.output.token_ids for stream in streams]
    assert got == [expected(strategy, question) for question in questions]
    assert texts == [stream.output.text for stream in streams]
    assert driver.raised > 3


def threads_ask(strategy: str, count: int) -> int:
    """Eight threads ask one `LLM`, a third of them in sessions; how many of `count` answers are wrong."""
    llm = LLM(
        model_of(strategy), decoding_strategy=strategy, max_num_batched_tokens=LEAST_ROWS.get(strategy, 256), max_sessions=8
    )
    asked = [(prompts(strategy)[n % 11], SamplingParams(max_tokens=9, seed=0)) for n in range(count)]

    def answer(number: int, question: Question) -> bool:
        if number % 3 == 0:
            session = llm.session()
            session.submit(*question)
            session.run()
            return session.output(0).token_ids == expected(strategy, question)
        if number % 3 == 1:
            stream = llm.stream(*question)
            "".join(stream)
            return stream.output.token_ids == expected(strategy, question)
        return llm.generate(*question, progress=False)[0].token_ids == expected(strategy, question)

    for question in asked[:11]:
        expected(strategy, question)
    with ThreadPoolExecutor(8) as threads:
        wrong = count - sum(threads.map(answer, range(count), asked))
    assert not llm.state.cache.owners and llm.state.done
    return wrong


def test_eight_threads_ask_a_model() -> None:
    assert threads_ask("multi_bd", 40) == 0


@pytest.mark.stress
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_eight_threads_ask_400_times(strategy: str, report: Callable[[str], None]) -> None:
    wrong = threads_ask(strategy, 400)
    report(f"{strategy}, 8 threads: {400 - wrong} of 400 answers right")
    assert not wrong


def test_threads_with_more_sessions_than_places_all_finish() -> None:
    llm = LLM(max_sessions=2, max_num_batched_tokens=40)
    questions = [(prompt, SamplingParams(max_tokens=9, seed=0)) for prompt in prompts("multi_bd")[7:11]]

    def answer(question: Question) -> tuple[int, ...]:
        session = llm.session()
        session.submit(*question)
        session.run()
        return session.output(0).token_ids

    due = [expected("multi_bd", question) for question in questions]
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(answer, questions)) == due


def test_a_session_that_goes_back_leaves_no_pages_behind() -> None:
    llm = LLM()
    session = llm.session()
    session.submit(prompts("multi_bd")[7], SamplingParams(max_tokens=20, seed=0))
    for steps in (1, 2, 3):  # back to the first state, too
        for _ in range(3):
            session.step()
        session.back(steps)
    session.run()
    assert len(list(llm.engine.driver._caches)) == 2, "the LLM's own, and that of the session"
    session.back(2)
    session.close()
    assert len(list(llm.engine.driver._caches)) == 1
