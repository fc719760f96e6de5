"""Tables of runs."""

import json

import pytest

import dlstep
from dlstep.evaluate.checkpoint import read
from dlstep.evaluate.options import EvalOptions, grid_of
from dlstep.evaluate.table import lines_of

from .running import run


def questions(path, *numbers, more=0):
    """A file of stories of the embedded task as questions, in this order."""
    stories = dlstep.tiny.problems(20)
    entries = [{"prompt": stories[each].prompt, "answer": str(stories[each].answer + more)} for each in numbers]
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return path


def asked(path, threshold=0.9):
    """A run of a file of questions."""
    chosen = EvalOptions(
        ("questions",), questions=str(path), out=str(path.with_suffix("")), grid=grid_of({"accept_threshold": threshold})
    )
    return read(run(chosen))


def test_runs_are_compared_problem_by_problem_in_any_order(tmp_path):
    one = asked(questions(tmp_path / "one.jsonl", 0, 1, 2, 3, 3, 4, 5))
    other = asked(questions(tmp_path / "other.jsonl", 5, 3, 4, 1, 3, 0, 2))
    part = asked(questions(tmp_path / "part.jsonl", 4, 2))
    for mine, reference in ((one, other), (other, one), (part, one), (one, part)):
        (line,) = lines_of(mine, reference)
        assert (line.equal, line.accuracy_gain.value, line.speed_gain.value) == (1.0, 0.0, 0.0)


def test_runs_of_different_problems_are_refused_by_name(tmp_path):
    one = asked(questions(tmp_path / "one.jsonl", 0, 1, 2))
    for changed in (
        asked(questions(tmp_path / "others.jsonl", 3, 4, 5)),
        asked(questions(tmp_path / "golds.jsonl", 0, 1, 2, more=1)),
        asked(questions(tmp_path / "some.jsonl", 0, 1, 3)),
    ):
        with pytest.raises(ValueError, match=rf"{one.folder} and {changed.folder} asked different problems of questions: "):
            lines_of(one, changed)
