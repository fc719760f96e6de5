"""Laws of the story task: its own answers score, others do not, and the held-out part stays out of training."""

import random
from itertools import islice

import pytest
from hypothesis import given, strategies as st

from dlstep.tiny import held_out, is_story, path, problems
from dlstep.tiny.task import draw_problem
from training.stories import draw_response, training_stories

FIRST_PROMPT = "Mia has 14 apples. Now Mia loses 9. Then Mia wins 5 more. How many apples does Mia have?\n"  # of seed 0
seeds = st.integers(0, 2**32)


@st.composite
def answered(draw):
    """A problem and one of its right answers."""
    source = random.Random(draw(seeds))
    problem = draw_problem(source)
    return problem, draw_response(problem, source)


@given(answered())
def test_stories_are_recognised_and_nothing_else(case):
    prompt = case[0].prompt
    assert is_story(prompt) and is_story(prompt.strip())
    assert not is_story(case[1]) and not is_story(f"Hello. {prompt}") and not is_story(prompt.replace(" has ", " had "))
    assert not is_story(f"{prompt}{prompt}") and not is_story("Hello, how are you?") and not is_story("")


def test_training_never_meets_a_held_out_story():
    assert not any(held_out(prompt) for prompt, _ in islice(training_stories(3), 100_000))


def test_problems_are_held_out_distinct_and_stable():
    drawn = problems(200, seed=4)
    assert all(held_out(problem.prompt) for problem in drawn)
    assert len({problem.prompt for problem in drawn}) == len(drawn) == 200
    assert problems(50, seed=4) == drawn[:50]
    assert problems(50, seed=5) != drawn[:50]


def test_the_split_is_the_same_on_every_machine():
    assert problems(1, seed=0)[0].prompt == FIRST_PROMPT
    share = sum(held_out(f"story {number}") for number in range(16_000)) / 16_000
    assert 0.05 < share < 0.075


def test_an_unknown_model_is_refused_with_the_known_names():
    with pytest.raises(ValueError, match=r"'tiny-xy': the shipped ones are .*tiny-bd"):
        path("tiny-xy")
