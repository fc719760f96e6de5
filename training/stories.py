"""The stories that the embedded models learn, each with one of its right answers."""

import random
from collections.abc import Iterator

from dlstep.tiny.task import Problem, closing_sentences, draw_problem, held_out, left_sides


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
