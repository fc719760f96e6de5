"""The story task: short word problems whose answer and chain of thought can be scored exactly.

This file owns the wording, the split into training and held-out stories, and the scores. It uses the standard library
only and draws no randomness beyond the seeds it is given.

A story gives a person a number of things and changes it one to three times (gain, lose, double). Its answer writes one
equation for each change and a closing sentence. The answer is many-valued on purpose: the operands of `+` come in
either order and there are three closing sentences, so tokens that are decided at the same time can contradict each
other, as they can in a large diffusion language model.
"""

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import assert_never

NAMES = ("Tom", "Ann", "Bob", "Eva", "Max", "Ida", "Leo", "Mia")
THINGS = ("apples", "books", "coins", "cards", "shells", "stamps", "pens", "eggs")
GAIN_VERBS = ("buys", "finds", "wins", "gets", "picks")
LOSE_VERBS = ("loses", "sells", "eats", "drops", "gives away")
LEADS = ("Then", "Later", "Now")
SMALLEST, LARGEST = 2, 60  # of the numbers that a story states
MOST_EVENTS = 3
GAIN_SHARE, LOSE_SHARE = 0.5, 0.4  # of the events; the others double
LARGEST_DOUBLED = 99
HELD_OUT_SHARE = 16  # one story in so many is held out

# The template's multi-character units, a symbol each in the tokenizer's vocabulary.
TEMPLATE_WORDS = (
    *NAMES,
    *(f" {thing}" for thing in THINGS),
    *(f" {verb} " for verb in ("has", *GAIN_VERBS, *LOSE_VERBS)),
    *(f"{lead} " for lead in (*LEADS, "So")),
    " now has ",
    " more",
    "How many",
    " does ",
    " have",
    " doubles the number",
    ". ",
    "?\n",
    " left",
)

_EQUATION = re.compile(r"(\d+)([+-])(\d+)=(\d+) (\w+)", re.ASCII)
_NUMBER = re.compile(r"\d+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Gain:
    """The person gets `amount` more."""

    amount: int

    def apply(self, total: int) -> int:
        """The number of things after the event."""
        return total + self.amount


@dataclass(frozen=True, slots=True)
class Lose:
    """The person gives up `amount`, which is at most what the person has."""

    amount: int

    def apply(self, total: int) -> int:
        """The number of things after the event."""
        return total - self.amount


@dataclass(frozen=True, slots=True)
class Double:
    """The person's number of things doubles."""

    def apply(self, total: int) -> int:
        """The number of things after the event."""
        return 2 * total


Event = Gain | Lose | Double


@dataclass(frozen=True, slots=True)
class Problem:
    """One story with what it takes to score an answer to it."""

    prompt: str
    answer: int
    name: str
    thing: str
    start: int
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Score:
    """Whether the last number is right, and whether every equation and the closing sentence are right as well."""

    answer: bool
    chain: bool


def held_out(prompt: str) -> bool:
    """Whether a story belongs to the held-out part, which no training run may see; the same on every machine."""
    digest = blake2b(prompt.encode("utf-8"), digest_size=8).digest()
    return int.from_bytes(digest) % HELD_OUT_SHARE == 0


def problems(n: int, seed: int = 0) -> tuple[Problem, ...]:
    """`n` held-out problems with distinct prompts; the same `seed` gives the same problems, a larger `n` adds to them.

    Raises ValueError for a negative `n`.
    """
    if n < 0:
        raise ValueError(f"the number of problems must not be negative, got {n}")
    source = random.Random(f"problems/{seed}")
    found: dict[str, Problem] = {}
    while len(found) < n:
        problem = draw_problem(source)
        if held_out(problem.prompt):
            found.setdefault(problem.prompt, problem)
    return tuple(found.values())


def training_stories(seed: int) -> Iterator[tuple[str, str]]:
    """Endless stream of (prompt, response) without held-out stories; the same `seed` gives the same stream."""
    source = random.Random(f"training/{seed}")
    while True:
        problem = draw_problem(source)
        if not held_out(problem.prompt):
            yield problem.prompt, draw_response(problem, source)


def draw_problem(source: random.Random) -> Problem:
    """One story out of all, held out or not."""
    name, thing = source.choice(NAMES), source.choice(THINGS)
    start = source.randint(SMALLEST, LARGEST)
    total = start
    sentences = [f"{name} has {start} {thing}. "]
    events: list[Event] = []
    for _ in range(source.randint(1, MOST_EVENTS)):
        event = _draw_event(source, total)
        total = event.apply(total)
        events.append(event)
        sentences.append(f"{source.choice(LEADS)} {name} {_predicate(event, source)}. ")
    sentences.append(f"How many {thing} does {name} have?\n")
    return Problem("".join(sentences), total, name, thing, start, tuple(events))


def draw_response(problem: Problem, source: random.Random) -> str:
    """One of the right answers: operand orders of `+` and the closing sentence are drawn."""
    total = problem.start
    parts: list[str] = []
    for event in problem.events:
        equation = source.choice(_equations(event, total))
        total = event.apply(total)
        parts.append(f"{equation}={total} {problem.thing}. ")
    return "".join(parts) + source.choice(closing_sentences(problem))


def closing_sentences(problem: Problem) -> tuple[str, ...]:
    """The sentences that may close a right answer."""
    return (
        f"{problem.name} has {problem.answer} {problem.thing}.",
        f"So {problem.answer} {problem.thing} left.",
        f"{problem.name} now has {problem.answer} {problem.thing}.",
    )


def score(problem: Problem, text: str) -> Score:
    """Score an answer's text, given without the prompt and without the end symbol.

    `answer` asks that the last number of the text is right; `chain` asks for one true equation per event, each
    continuing from the one before with the story's own amount, and for one of the closing sentences.
    """
    numbers = _NUMBER.findall(text)
    answer = bool(numbers) and numbers[-1] == str(problem.answer)
    *equations, closing = text.split(". ")
    if closing not in closing_sentences(problem) or len(equations) != len(problem.events):
        return Score(answer, chain=False)
    total = problem.start
    for written, event in zip(equations, problem.events, strict=True):
        after = event.apply(total)
        if not _states(written, _equations(event, total), after, problem.thing):
            return Score(answer, chain=False)
        total = after
    return Score(answer, chain=answer)


def _draw_event(source: random.Random, total: int) -> Event:
    """Gains and losses are frequent, doubling is rare and keeps numbers at three digits."""
    share = source.random()
    if share < GAIN_SHARE or total < SMALLEST:
        return Gain(source.randint(SMALLEST, LARGEST))
    if share < GAIN_SHARE + LOSE_SHARE or total > LARGEST_DOUBLED:
        return Lose(source.randint(SMALLEST, min(total, LARGEST)))
    return Double()


def _predicate(event: Event, source: random.Random) -> str:
    match event:
        case Gain(amount):
            return f"{source.choice(GAIN_VERBS)} {amount} more"
        case Lose(amount):
            return f"{source.choice(LOSE_VERBS)} {amount}"
        case Double():
            return "doubles the number"
        case _:
            assert_never(event)


def _equations(event: Event, total: int) -> tuple[str, ...]:
    """The left sides that may describe the event when `total` things are there before it."""
    match event:
        case Gain(amount):
            return f"{total}+{amount}", f"{amount}+{total}"
        case Lose(amount):
            return (f"{total}-{amount}",)
        case Double():
            return (f"{total}+{total}",)
        case _:
            assert_never(event)


def _states(written: str, left_sides: tuple[str, ...], after: int, thing: str) -> bool:
    """Whether the written equation is one of the expected ones, with the right result and the right thing."""
    found = _EQUATION.fullmatch(written)
    if found is None:
        return False
    left, operator, right, result, counted = found.groups()
    return f"{left}{operator}{right}" in left_sides and result == str(after) and counted == thing
