"""The stories that the embedded models learn, each with one of its right answers, and the scores of other answers."""

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

from dlstep.tiny.task import Event, Problem, draw_problem, held_out

_NUMBER = re.compile(r"\d+", re.ASCII)


def training_stories(seed: int) -> Iterator[tuple[str, str]]:
    """Yield (prompt, response) pairs forever, without held-out stories, determined by `seed`."""
    source = random.Random(f"training/{seed}")
    while True:
        problem = draw_problem(source)
        if not held_out(problem.prompt):
            yield problem.prompt, draw_response(problem, source)


def draw_response(problem: Problem, source: random.Random) -> str:
    """Draw a right answer, with a random order of the operands of `+` and a random closing sentence."""
    total = problem.start
    parts: list[str] = []
    for event in problem.events:
        equation = source.choice(left_sides(event, total))
        total = event.apply(total)
        parts.append(f"{equation}={total} {problem.thing}. ")
    return "".join(parts) + source.choice(closing_sentences(problem))


@dataclass(frozen=True, slots=True)
class Score:
    """Whether the last number is right, and whether all equations and the closing sentence are right."""

    answer: bool
    chain: bool


def closing_sentences(problem: Problem) -> tuple[str, ...]:
    """Return the sentences that may close a right answer."""
    return (
        f"{problem.name} has {problem.answer} {problem.thing}.",
        f"So {problem.answer} {problem.thing} left.",
        f"{problem.name} now has {problem.answer} {problem.thing}.",
    )


def score(problem: Problem, text: str) -> Score:
    """Score an answer, given without the prompt and the end symbol.

    `answer` requires that the last number is right. `chain` requires one true equation per event,
    each continuing from the previous result with the story's amount, and a closing sentence.
    """
    numbers = _NUMBER.findall(text)
    answer = bool(numbers) and numbers[-1] == str(problem.answer)
    *equations, closing = text.split(". ")
    if closing not in closing_sentences(problem) or len(equations) != len(problem.events):
        return Score(answer, chain=False)
    total = problem.start
    for written, event in zip(equations, problem.events, strict=True):
        after = event.apply(total)
        if written not in [f"{left}={after} {problem.thing}" for left in left_sides(event, total)]:
            return Score(answer, chain=False)
        total = after
    return Score(answer, chain=answer)


def left_sides(event: Event, total: int) -> tuple[str, ...]:
    """Return the left sides that describe the event with `total` things before it."""
    if event.amount is None:
        return (f"{total}+{total}",)
    if event.amount > 0:
        return f"{total}+{event.amount}", f"{event.amount}+{total}"
    return (f"{total}{event.amount}",)  # the minus is the sign of the amount
