"""Programs found in answers."""

from typing import Any

import pytest

from dlstep.evaluate.documents import Document
from dlstep.evaluate.options import CODE_TASKS
from dlstep.evaluate.scoring import program_of

from .forms import BODY, WHOLE

CODE = 'FACTOR = 2\n\n\ndef double(n):\n    """Twice a number."""\n'
DOUBLE = Document(0, CODE, "", ("assert double(3) == 6", "assert double(4) == 8"), CODE, "double")


@pytest.mark.parametrize("task", CODE_TASKS)
def test_a_right_program_is_found_in_every_usual_form(task: str) -> None:
    program = "def double(n):\n    if n:\n        return 2 * n\n    return 0\n"
    answers = {name: form(program, "double") for name, form in WHOLE.items()}
    if task == "humaneval":
        answers |= {name: wrap("    if n:\n        return FACTOR * n\n    return 0\n") for name, wrap in BODY.items()}
    for name, answer in answers.items():
        names: dict[str, Any] = {}
        exec(compile(program_of(task, DOUBLE, answer), name, "exec"), names)
        assert names["double"](3) == 6 and names["double"](0) == 0, name
