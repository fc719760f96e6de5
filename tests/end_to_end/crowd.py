"""A crowd of sessions, streams and calls on one `LLM`, which must answer as if each request were alone."""

import gc
from functools import cache
from random import Random
from typing import Any

from dlstep import LLM, Output, SamplingParams, Session, tiny
from dlstep.core import Samples
from dlstep.stream import Stream

from ..helpers.any_strategy import model_of

LENGTHS = (1, 2, 8, 9, 31, 33, 55, 64, 86, 130, 210, 300, 400)
# Rows per forward pass for strategies that feed a whole prompt, or prompt and answer, at once.
LEAST_ROWS = {"d2f": 450, "dreamon": 500}
Question = tuple[tuple[int, ...], SamplingParams]


@cache
def alone(strategy: str) -> LLM:
    """An engine that decodes one request at a time and keeps nothing between two."""
    return LLM(model_of(strategy), decoding_strategy=strategy, enable_prefix_caching=False, max_num_reqs=1)


@cache
def expected(strategy: str, question: Question) -> tuple[int, ...]:
    """The answer to a question that is asked alone."""
    return alone(strategy).generate(question[0], question[1])[0].token_ids


@cache
def prompts(strategy: str) -> tuple[tuple[int, ...], ...]:
    """Prompts of all lengths; some begin alike."""
    tokenizer = alone(strategy).engine.tokenizer
    assert tokenizer is not None
    texts = ["\n".join(problem.prompt for problem in tiny.problems(16, seed=seed)) for seed in (1, 2, 3)]
    tokens = [tokenizer.encode(text) for text in texts]
    return tuple(tuple(ids[:length]) for ids in tokens for length in LENGTHS)


class Crowd:
    """Sessions and streams that come, take turns and go, at random; `wrong` counts answers that are not those given alone."""

    def __init__(self, strategy: str, seed: int, *, sessions: int, streams: int, **options: Any) -> None:
        self.strategy, self.random = strategy, Random(seed)
        self.llm = LLM(model_of(strategy), decoding_strategy=strategy, **options)
        self.sessions = [self.llm.session() for _ in range(sessions)]
        self.streams: list[Stream[str]] = []
        self.places = streams
        self.asked: dict[int, Question] = {}  # of a stream, by identity
        self.right = 0
        self.wrong: list[str] = []

    def question(self) -> Question:
        """A prompt and what is asked of it; greedy or sampled with a seed."""
        prompt = self.random.choice(prompts(self.strategy))
        most = self.random.choice((1, 9, 20, 64))
        sampled = self.random.random() < 0.5 and self.strategy != "diffusion_gemma"  # its temperatures are its own
        temperature = self.random.choice((0.5, 1.0)) if sampled else 0.0
        return prompt, SamplingParams(max_tokens=most, temperature=temperature, seed=self.random.randrange(3))

    def check(self, source: str, question: Question, got: tuple[int, ...]) -> None:
        """Count an answer."""
        due = expected(self.strategy, question)
        if got == due:
            self.right += 1
        else:
            self.wrong.append(f"{source}: {len(question[0])} tokens, {question[1]}: {got} in place of {due}")

    def round(self) -> None:
        """Each session takes a step and each stream gives a piece, in any order; something else happens between."""
        while len(self.streams) < self.places:
            question = self.question()
            stream = self.llm.stream(*question)
            self.streams.append(stream)
            self.asked[id(stream)] = question
        turns: list[Session | Stream[str]] = [*self.sessions, *self.streams]
        self.random.shuffle(turns)
        for turn in turns:
            if isinstance(turn, Session):
                self.step(turn)
            else:
                self.take(turn)
        self.event()

    def step(self, session: Session) -> None:
        """One to three steps of a session; it gets something to do first, if it has nothing."""
        if session.state.done or self.random.random() < 0.2:
            for _ in range(self.random.choice((1, 1, 2, 3))):
                session.submit(*self.question())
        for _ in range(self.random.choice((1, 1, 1, 3))):
            if not session.state.done:
                session.step()

    def take(self, stream: Stream[str]) -> None:
        """The next piece of a stream, or its end."""
        try:
            next(stream)
        except StopIteration as end:
            output: Output = end.value
            self.check("stream", self.asked.pop(id(stream)), output.token_ids)
            self.streams.remove(stream)

    def event(self) -> None:
        """Something that happens to a session or a stream, or a call of `generate`."""
        session = self.random.choice(self.sessions)
        match self.random.randrange(11):
            case 0:
                questions = [self.question() for _ in range(self.random.choice((1, 3)))]
                asked, params = [question[0] for question in questions], [question[1] for question in questions]
                for question, output in zip(questions, self.llm.generate(asked, params), strict=True):
                    self.check("generate", question, output.token_ids)
            case 1 if session.state.live:
                session.abort(self.random.choice(sorted(session.state.live)))
            case 2 | 3 if session.samples is not None:
                steps = sum(isinstance(event, Samples) for event in session.trace.events)
                session.back(self.random.randint(1, min(4, max(1, steps // 3))))
            case 4 | 5:
                branch = session.fork()
                self.finish(session)
                self.sessions[self.sessions.index(session)] = branch
            case 6:
                session.close()
            case 7:
                self.sessions[self.random.randrange(len(self.sessions))] = self.llm.session()
            case 8:
                resumed = self.llm.resume(session.trace)
                assert resumed.state == session.state
                self.sessions[self.sessions.index(session)] = resumed
            case 9 if self.streams:
                gone = self.streams.pop(self.random.randrange(len(self.streams)))
                self.asked.pop(id(gone))
                if self.random.random() < 0.5:
                    gone.close()
            case _:
                self.llm.stream(*self.question())  # collected, never iterated

    def finish(self, session: Session) -> None:
        """Run a session to its end and check all that it was asked and did not abort."""
        session.run()
        for sequence in map(session.state.finished.get, session.state.ended):
            if sequence.finish != "abort":
                question = sequence.request.prompt, sequence.request.params
                self.check("session", question, sequence.answer)
        assert not session.state.cache.owners

    def end(self) -> int:
        """Finish all; how many pages are owned when everybody is gone."""
        while self.sessions:
            self.finish(self.sessions.pop())
        while self.streams:
            self.take(self.streams[0])
        gc.collect()
        self.llm.generate((5, 6, 7), SamplingParams(max_tokens=1))
        driver: Any = self.llm.engine.driver
        caches = [cache for cache in driver._caches if cache is not driver._caches.main]
        return len(self.llm.state.cache.owners) + sum(sum(cache.tables.lengths.values()) for cache in caches)
