"""Laws of the story task: its own answers score, others do not, and the held-out part stays out of training."""

import random
import re
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from dlstep.tiny import Score, held_out, is_embedded, is_story, names, path, problems, score
from dlstep.tiny.task import LARGEST, MOST_EVENTS, SMALLEST, Problem, draw_problem
from training.stories import draw_response, training_stories

FIRST_PROMPT = "Mia has 14 apples. Now Mia loses 9. Then Mia wins 5 more. How many apples does Mia have?\n"  # of seed 0
seeds = st.integers(0, 2**32)


@st.composite
def answered(draw: st.DrawFn) -> tuple[Problem, str]:
    """A problem and one of its right answers."""
    source = random.Random(draw(seeds))
    problem = draw_problem(source)
    return problem, draw_response(problem, source)


@given(answered())
def test_own_answers_score(case: tuple[Problem, str]) -> None:
    problem, response = case
    assert score(problem, response) == Score(answer=True, chain=True)


@given(answered(), st.data())
def test_a_wrong_number_breaks_the_chain(case: tuple[Problem, str], data: st.DataObject) -> None:
    problem, response = case
    numbers = list(re.finditer(r"\d+", response))
    place = data.draw(st.sampled_from(numbers))
    other = data.draw(st.integers(0, 999).filter(lambda number: number != int(place[0])))
    wrong = response[: place.start()] + str(other) + response[place.end() :]
    assert score(problem, wrong) == Score(answer=place is not numbers[-1], chain=False)


@given(answered(), st.data())
def test_a_missing_or_repeated_sentence_breaks_the_chain(case: tuple[Problem, str], data: st.DataObject) -> None:
    problem, response = case
    sentences = response.split(". ")
    index = data.draw(st.integers(0, len(sentences) - 1))
    copies = data.draw(st.sampled_from((0, 2)))
    changed = ". ".join([*sentences[:index], *[sentences[index]] * copies, *sentences[index + 1 :]])
    assert not score(problem, changed).chain


@given(answered(), st.text(max_size=40))
def test_any_text_can_be_scored(case: tuple[Problem, str], text: str) -> None:
    problem, _ = case
    result = score(problem, text)
    assert result.answer or not result.chain


@given(answered())
def test_stories_are_recognised_and_nothing_else(case: tuple[Problem, str]) -> None:
    prompt = case[0].prompt
    assert is_story(prompt) and is_story(prompt.strip())
    assert not is_story(case[1]) and not is_story(f"Hello. {prompt}") and not is_story(prompt.replace(" has ", " had "))
    assert not is_story(f"{prompt}{prompt}") and not is_story("Hello, how are you?") and not is_story("")


@given(answered())
def test_stories_state_what_the_problem_holds(case: tuple[Problem, str]) -> None:
    problem, _ = case
    total = problem.start
    for event in problem.events:
        total = event.apply(total)
    assert total == problem.answer >= 0
    assert 1 <= len(problem.events) <= MOST_EVENTS
    assert all(SMALLEST <= int(number) <= LARGEST for number in re.findall(r"\d+", problem.prompt))
    assert problem.prompt.startswith(f"{problem.name} has {problem.start} {problem.thing}. ")


def test_answers_are_many_valued() -> None:
    problem = problems(1)[0]
    source = random.Random(0)
    assert len({draw_response(problem, source) for _ in range(100)}) >= 3


def test_training_never_meets_a_held_out_story() -> None:
    assert not any(held_out(prompt) for prompt, _ in islice(training_stories(3), 100_000))


def test_problems_are_held_out_distinct_and_stable() -> None:
    drawn = problems(200, seed=4)
    assert all(held_out(problem.prompt) for problem in drawn)
    assert len({problem.prompt for problem in drawn}) == len(drawn) == 200
    assert problems(50, seed=4) == drawn[:50]
    assert problems(50, seed=5) != drawn[:50]


def test_the_split_is_the_same_on_every_machine() -> None:
    assert problems(1, seed=0)[0].prompt == FIRST_PROMPT
    share = sum(held_out(f"story {number}") for number in range(16_000)) / 16_000
    assert 0.05 < share < 0.075


def test_arguments_out_of_range_are_named() -> None:
    with pytest.raises(ValueError, match="must not be negative, got -1"):
        problems(-1)
    with pytest.raises(ValueError, match=r"'tiny-xy': the shipped ones are .*tiny-bd"):
        path("tiny-xy")


def test_folders_of_shipped_models_are_recognised(tmp_path: Path) -> None:
    assert all(is_embedded(path(name)) for name in names())
    assert not is_embedded(tmp_path) and not is_embedded(None) and not is_embedded(path(names()[0]).parent)


def test_names_lead_to_folders() -> None:
    assert {"tiny-bd", "tiny-d2f", "tiny-edit", "tiny-fdv2", "tiny-joint", "tiny-llada", "tiny-canvas"} <= set(names())
    assert all((path(name) / "config.json").is_file() for name in names())


def test_the_package_is_light() -> None:
    check = "import sys, dlstep.tiny; assert not {'torch', 'transformers', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True)
