"""Requests of a simulation: arrivals, shared prompt prefixes, lengths and pace of answers."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import accumulate, takewhile
from random import Random
from typing import Any

from ..core import NO_SAMPLES, Request, SamplingParams, Span, SpanSamples, Spec, Strategy

MASK, EOS, WORD = 0, 1, 2  # ids of the mask, the end of an answer, and all its tokens; prompts use later ids
VOCABULARY = (1 << 31) - 1
SHARED_IDS = 1 << 30  # first id of shared prompt prefixes
SURE, UNSURE = 1.0, 0.25
REACH = 1.5  # fitted to the rows per forward pass of the embedded models: tests/unit/simulate/test_work.py


@dataclass(frozen=True, slots=True)
class MeasuredAnswer:
    """A measured answer: tokens of its prompt, its own, and the forward passes that sampled or stored it."""

    prompt: int
    tokens: int
    forwards: int

    def __post_init__(self) -> None:
        if self.prompt < 1 or self.tokens < 0 or self.forwards < 1:
            raise ValueError(
                f"an answer has at least one prompt token, no token or more, and at least one forward pass; got {self.prompt}, "
                f"{self.tokens} and {self.forwards}"
            )


USUAL = tuple([MeasuredAnswer(64, 32 + 4 * place, 14 + place % 5) for place in range(8)])  # default without measured answers


@dataclass(frozen=True, slots=True)
class SimulatedRequest:
    """A request: arrival, prompt, and the course of its answer. `limit` is its `max_tokens`."""

    at: float
    prompt: tuple[int, ...]
    tokens: int
    forwards: int
    limit: int

    def request(self, number: int) -> Request:
        """Return the request for a scheduler. The seed has no effect because samples are scripted."""
        return Request(number, self.prompt, SamplingParams(max_tokens=self.limit, seed=0))


@dataclass(frozen=True, slots=True)
class Beginnings:
    """Prompt prefixes: `count` texts of `tokens` tokens, the k-th with a frequency of 1/k**`exponent`."""

    count: int = 0
    tokens: int = 0
    exponent: float = 1.0

    def __post_init__(self) -> None:
        if self.count < 0 or self.tokens < 0 or self.exponent < 0:
            raise ValueError(f"beginnings have a count, tokens and an exponent that are not below 0, got {self}")


def poisson(rate: float, random: Random) -> Iterator[float]:
    """Yield arrival times, `rate` per second on average, the same as `dlstep bench serve` for this seed."""
    now = 0.0
    while True:
        now += random.expovariate(rate)
        yield now


def drawn_jobs(
    answers: Sequence[MeasuredAnswer], count: int, rate: float, *, limit: int, seed: int, beginnings: Beginnings = Beginnings()
) -> list[SimulatedRequest]:
    """Return `count` requests with answers drawn from measured ones; prompts share only `beginnings`."""
    random, times = Random(f"{seed} answers"), poisson(rate, Random(seed))
    weights = list(accumulate(1 / k**beginnings.exponent for k in range(1, beginnings.count + 1)))
    requests: list[SimulatedRequest] = []
    for number, answer in enumerate(random.choices(answers, k=count)):
        own = (WORD + 1 + number,) * answer.prompt
        if weights:
            (which,) = random.choices(range(beginnings.count), cum_weights=weights)
            own = (SHARED_IDS + which,) * beginnings.tokens + own
        requests.append(SimulatedRequest(next(times), own, answer.tokens, answer.forwards, max(limit, answer.tokens, 1)))
    return requests


def repeated_jobs(
    answers: Sequence[MeasuredAnswer], rate: float, seconds: float, *, prompts: int, limit: int, seed: int
) -> list[SimulatedRequest]:
    """Return the requests that `dlstep bench serve` sends in `seconds`, cycling through `prompts` prompts."""
    times = takewhile(lambda at: at < seconds, poisson(rate, Random(seed)))
    return [_of_prompt(number % prompts, at, answers, limit) for number, at in enumerate(times)]


def each_once(answers: Sequence[MeasuredAnswer], prompts: int, limit: int) -> list[SimulatedRequest]:
    """Return the prompts of `repeated_jobs`, each once and all at the same time."""
    return [_of_prompt(which, 0.0, answers, limit) for which in range(prompts)]


def _of_prompt(which: int, at: float, answers: Sequence[MeasuredAnswer], limit: int) -> SimulatedRequest:
    """Return a request with prompt number `which`, and a measured answer chosen by the same number."""
    answer = answers[which % len(answers)]
    return SimulatedRequest(
        at, (WORD + 1 + which,) * answer.prompt, answer.tokens, answer.forwards, max(limit, answer.tokens, 1)
    )


def scripted_spec() -> Spec:
    """Return a spec with enough ids for all kinds of prompts."""
    return Spec(MASK, (EOS,), VOCABULARY)


def scripted_strategy(kind: type[Strategy], options: Mapping[str, Any]) -> Strategy:
    """Return a strategy that unmasks only the positions that a script is sure of.

    Raises ValueError for options that it does not have.
    """
    known = {field.name for field in fields(kind)}
    if unknown := sorted(options.keys() - known):
        raise ValueError(f"{kind.__name__} has no option {unknown[0]!r}; its options are {', '.join(sorted(known))}")
    calm = {"semi_complete_threshold": 1.0} if "semi_complete_threshold" in known else {}
    strategy = kind(**{**options, **calm})
    if reason := strategy.incompatibility(scripted_spec()):
        raise ValueError(f"{kind.__name__} cannot be simulated: {reason}")
    return strategy


class SamplesScript:
    """Scripted samples of a request.

    The answer ends after `SimulatedRequest.forwards` forward passes if the window of the strategy
    allows it. Forward passes that only store KV entries count as well. The remaining positions are
    spread evenly over the remaining passes. While the window ends before the answer, one forward
    pass is reserved for each window that is still to come.

    With n sure positions in a forward pass, the first sampled position is sure, and the others are
    drawn from the first `REACH` * n. Models unmask roughly from left to right; draws from the whole
    window would leave early blocks open, which takes more forward passes and rows.
    """

    def __init__(self, job: SimulatedRequest, seed: int) -> None:
        self._job, self._random = job, Random(seed)
        self._end = len(job.prompt) + job.tokens
        self._due = job.tokens + (job.tokens < job.limit)  # positions to unmask, including the end of the answer
        self._forwards = self._widest = 0

    def rows(self, span: Span) -> SpanSamples:
        """Return the samples of a span of the request."""
        self._forwards += 1
        if not span.sampled:
            return NO_SAMPLES
        count = len(span.sampled)
        words = bisect_left(span.sampled, self._end)
        useful = min(count, words + 1)
        self._widest = max(self._widest, count)
        sure = self._sure(useful)
        self._due -= sure
        probabilities = [UNSURE] * count
        probabilities[0] = SURE
        near = min(useful, int(REACH * sure))
        for place in self._random.sample(range(1, near), sure - 1) if sure > 1 else ():
            probabilities[place] = SURE
        return SpanSamples((WORD,) * words + (EOS,) * (count - words), tuple(probabilities))

    def _sure(self, useful: int) -> int:
        """Return how many of the `useful` sampled positions this forward pass unmasks."""
        due, left = max(1, self._due), max(1, self._job.forwards - self._forwards + 1)
        if due > useful:  # the rest lies beyond the window
            later = -(-(due - useful) // self._widest)
            left, due = max(1, min(left - later, round(left * useful / due))), useful
        return min(useful, -(-due // left))
