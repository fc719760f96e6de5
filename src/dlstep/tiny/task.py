"""The story task: short word problems whose answer and chain of thought can be scored exactly.

This module defines the wording, the split into training and held-out stories, and the scores. It
uses only the standard library, and no randomness besides the given seeds.

A story gives a person a number of things and changes it one to three times (gain, lose, double).
The answer has one equation per change and a closing sentence. Several answers are right on purpose:
the operands of `+` come in either order and there are three closing sentences, so tokens that are
unmasked together can contradict each other, as in a large diffusion language model.
"""

import random
import re
from hashlib import blake2b
from typing import NamedTuple

NAMES = ("Tom", "Ann", "Bob", "Eva", "Max", "Ida", "Leo", "Mia")
THINGS = ("apples", "books", "coins", "cards", "shells", "stamps", "pens", "eggs")
GAIN_VERBS = ("buys", "finds", "wins", "gets", "picks")
LOSE_VERBS = ("loses", "sells", "eats", "drops", "gives away")
LEADS = ("Then", "Later", "Now")
SMALLEST, LARGEST = 2, 60  # bounds of the numbers in a story
MOST_EVENTS = 3
GAIN_SHARE, LOSE_SHARE = 0.5, 0.4  # shares of events; the others double
LARGEST_DOUBLED = 99
HELD_OUT_SHARE = 16  # one in this many stories is held out

_VERBS = "|".join(
    [*(rf"{verb} \d+ more" for verb in GAIN_VERBS), *(rf"{verb} \d+" for verb in LOSE_VERBS), "doubles the number"]
)
_STORY = re.compile(
    rf"(?P<name>{'|'.join(NAMES)}) has \d+ (?P<thing>{'|'.join(THINGS)})\. "
    rf"(?:(?:{'|'.join(LEADS)}) (?P=name) (?:{_VERBS})\. ){{1,{MOST_EVENTS}}}How many (?P=thing) does (?P=name) have\?",
    re.ASCII,
)


class Event(NamedTuple):
    """An event that changes the number of things by `amount` (negative: a loss), or doubles it if `amount` is None."""

    amount: int | None

    def apply(self, total: int) -> int:
        """Return the number of things after the event."""
        return total + (total if self.amount is None else self.amount)


class Problem(NamedTuple):
    """One story, with everything needed to score an answer."""

    prompt: str
    answer: int
    name: str
    thing: str
    start: int
    events: tuple[Event, ...]


def held_out(prompt: str) -> bool:
    """Return whether a story is held out from training; the same on every machine."""
    digest = blake2b(prompt.encode("utf-8"), digest_size=8).digest()
    return int.from_bytes(digest) % HELD_OUT_SHARE == 0


def problems(n: int, seed: int = 0) -> tuple[Problem, ...]:
    """Return `n` held-out problems with distinct prompts.

    The same `seed` gives the same problems; a larger `n` appends to them.
    """
    source = random.Random(f"problems/{seed}")
    found: dict[str, Problem] = {}
    while len(found) < n:
        problem = draw_problem(source)
        if held_out(problem.prompt):
            found.setdefault(problem.prompt, problem)
    return tuple(found.values())


def is_story(prompt: str) -> bool:
    """Return whether a prompt is worded like the stories of the task. The embedded models continue no other prompts."""
    return _STORY.fullmatch(prompt.strip()) is not None


def draw_problem(source: random.Random) -> Problem:
    """Draw a story, held out or not."""
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


def _draw_event(source: random.Random, total: int) -> Event:
    """Draw an event: often a gain or loss, rarely a double, so that numbers have at most three digits."""
    share = source.random()
    if share < GAIN_SHARE or total < SMALLEST:
        return Event(source.randint(SMALLEST, LARGEST))
    if share < GAIN_SHARE + LOSE_SHARE or total > LARGEST_DOUBLED:
        return Event(-source.randint(SMALLEST, min(total, LARGEST)))
    return Event(None)


def _predicate(event: Event, source: random.Random) -> str:
    if event.amount is None:
        return "doubles the number"
    if event.amount > 0:
        return f"{source.choice(GAIN_VERBS)} {event.amount} more"
    return f"{source.choice(LOSE_VERBS)} {-event.amount}"
