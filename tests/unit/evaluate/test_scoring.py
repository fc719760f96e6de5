"""Answers score as the tables of docs/evaluation.md say and as lm_eval says, and none of them can hang a scorer."""

import time
from collections import Counter
from typing import Any

import pytest

from dlstep.evaluate.documents import Document
from dlstep.evaluate.jail import Jail
from dlstep.evaluate.options import CODE_TASKS
from dlstep.evaluate.scoring import Mark, code_mark, ending_mark, harness_program, maths_mark, number_mark, program_of

from ...helpers.given import cases
from .answer_suite import Case, frozen, frozen_cases, suite

CASES = cases()
CODE = 'FACTOR = 2\n\n\ndef double(n):\n    """Twice a number."""\n'
DOUBLE = Document(0, CODE, "", ("assert double(3) == 6", "assert double(4) == 8"), CODE, "double")


def mark_of(task: str, document: Document, answer: str) -> Mark:
    """The mark of an answer that is no program."""
    if task == "math500":
        return maths_mark(document, answer)
    return ending_mark(document, answer) if task == "questions" else number_mark(task, document, answer)


def test_the_page_has_enough_cases() -> None:
    assert len(CASES) == len(set(CASES)) > 60
    assert {task for task, _, _, _ in CASES} == {"shells", "gsm8k", "math500", "humaneval", "mbpp", "questions"}


@pytest.mark.parametrize(("task", "answer", "expected", "score"), [case for case in CASES if case[0] not in CODE_TASKS])
def test_an_answer_scores_as_the_page_says(task: str, answer: str, expected: str, score: float) -> None:
    mark = mark_of(task, Document(0, "", expected), answer)
    assert mark.score == score, mark


@pytest.mark.parametrize(("task", "answer", "score"), [(case[0], case[1], case[3]) for case in CASES if case[0] in CODE_TASKS])
def test_a_program_scores_as_the_page_says(task: str, answer: str, score: float, jail: Jail) -> None:
    mark = code_mark(task, DOUBLE, answer, jail)
    assert mark.score == score, mark


def test_both_readings_are_reported() -> None:
    document = Document(0, "", "36")
    assert number_mark("gsm8k", document, "#### 36 and 7").scores == {"flexible-extract": 0.0, "strict-match": 1.0}
    assert number_mark("gsm8k", document, "So 36.").scores == {"flexible-extract": 1.0, "strict-match": 0.0}
    assert number_mark("shells", document, "So 36.").scores == {"flexible-extract": 1.0}


@pytest.mark.parametrize(
    ("final", "gold", "score"),
    [
        ("$(1,2)$", "(1,2)", 1),
        ("1,000 cents", "1000", 1),
        ("$2 \\sqrt 2$", "\\sqrt{8}", 1),
        ("2516", "2516_8", 1),
        ("7", "8", 0),
    ],
)
def test_minervas_rule_compares_the_final_answer(final: str, gold: str, score: float) -> None:
    answer = f"Final Answer: The final answer is {final}. I hope it is correct."
    assert maths_mark(Document(0, "", gold), answer).scores["exact_match"] == score
    assert maths_mark(Document(0, "", gold), f"It is {final}.").scores["exact_match"] == 0


def verdict(case: Case) -> dict[str, Any]:
    """Return the verdict of this package in lm_eval's words, or the text of a program."""
    if case.task in CODE_TASKS:
        return {"program": harness_program(case.task, case.document, case.answer, chat=case.chat)}
    return dict(mark_of(case.task, case.document, case.answer).scores)


def test_answers_score_as_lm_eval_says() -> None:
    """A part of the thousand answers that `make clients` compares with lm_eval itself, which has said what is in the file."""
    chosen, verdicts = frozen_cases(suite()), frozen("verdicts")
    assert {case.name for case in chosen} == set(verdicts) and len(verdicts) > 140
    assert {case.name: verdict(case) for case in chosen} == verdicts
    kinds = Counter((case.task, case.kind) for case in chosen)
    assert all(kinds[task, "garbled"] for task in ("gsm8k", "math500", "humaneval", "mbpp")) and kinds["gsm8k", "shuffled"]


def test_without_a_jail_no_program_is_run() -> None:
    mark = code_mark("mbpp", DOUBLE, "raise SystemExit", None)
    assert (mark.score, mark.note, set(mark.scores)) == (0.0, "not run", {"any-form", "lm_eval"})


def test_a_program_that_lm_eval_would_pass_passes_in_any_form(jail: Jail) -> None:
    """lm_eval cuts at the first fence, so the body before it counts, whatever is written behind it."""
    answer = "    return 2 * n\n```\nWrong would be\n```python\ndef double(n):\n    return n\n```\n"
    assert code_mark("humaneval", DOUBLE, answer, jail, chat=True).scores == {"any-form": 1.0, "lm_eval": 1.0}
    assert code_mark("humaneval", DOUBLE, answer, jail).scores == {"any-form": 0.0, "lm_eval": 0.0}


HOSTILE = (
    "{",
    r"\boxed{",
    "-",
    "1,",
    "9",
    "$",
    "#### ",
    "#### -",
    "```\n",
    "```a",
    "~",
    '"""',
    "a = ",
    "def f",
    " ",
    "\n",
    ".,$-",
)


@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_texts_are_read_in_linear_time(piece: str) -> None:
    """Four times the text takes about four times as long, not sixteen times; seconds of the processor are counted."""
    took: list[float] = []
    for size in (50_000, 200_000):
        text = piece * (size // len(piece))
        begin = time.process_time()
        number_mark("gsm8k", Document(0, "", "36"), text)
        ending_mark(Document(0, "", "no number"), text)
        for task in CODE_TASKS:
            program_of(task, DOUBLE, text)
            harness_program(task, DOUBLE, text, chat=True)
        took.append(time.process_time() - begin)
    assert took[1] < max(10 * took[0], 0.5), took
