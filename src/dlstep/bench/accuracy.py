"""Accuracy on held-out problems, and the forward passes that the answers took."""

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

from .. import tiny
from ..core import SamplingParams
from ..evaluate.metrics import Answers
from ..llm import LLM
from ..text.output import Output


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Figures over a set of problems.

    `answer` and `chain` are the shares of problems whose last number, and whose every equation, is
    right. `forwards` is the mean `nfe` per answer; ratios are ratios of sums.
    """

    problems: int
    answer: float
    chain: float
    tokens_per_forward: float
    tokens_per_step: float
    forwards: float
    tokens: int
    seconds: float

    @property
    def tokens_per_second(self) -> float:
        """Return emitted tokens / wall time."""
        return self.tokens / self.seconds


def evaluate(llm: LLM, problems: Sequence[tiny.Problem], params: SamplingParams, *, progress: bool = False) -> Accuracy:
    """Answer `problems` together and score the answers. Raises ValueError for an empty set."""
    if not problems:
        raise ValueError("there is no problem to evaluate on: give at least one")
    begin = perf_counter()
    outputs = llm.generate([problem.prompt for problem in problems], params, progress=progress)
    return tally(problems, outputs, perf_counter() - begin)


def tally(problems: Sequence[tiny.Problem], outputs: Sequence[Output], seconds: float) -> Accuracy:
    """Return the figures of finished outputs."""
    scores = [tiny.score(problem, output.text) for problem, output in zip(problems, outputs, strict=True)]
    sums = Answers.total(
        Answers.counted(score=float(score.answer), tokens=len(output.token_ids), forwards=output.nfe, steps=output.steps)
        for score, output in zip(scores, outputs, strict=True)
    )
    return Accuracy(
        problems=len(problems),
        answer=sums.accuracy,
        chain=sum(score.chain for score in scores) / len(problems),
        tokens_per_forward=sums.tokens_per_forward,
        tokens_per_step=sums.tokens_per_step,
        forwards=sums.forwards_per_answer,
        tokens=sums.tokens,
        seconds=seconds,
    )
