"""Expected answers score 100 %, those of other problems less than 5 %, for every task."""

from collections.abc import Callable

import pytest

from dlstep.evaluate.documents import Document, documents_of
from dlstep.evaluate.jail import Jail
from dlstep.evaluate.scoring import code_mark, maths_mark, number_mark, program_of

from ...helpers.given import DATA, needs_data
from .forms import BODY, WHOLE, solutions, whole

Report = Callable[[str], None]
EVERY = pytest.mark.parametrize("every", [64, pytest.param(1, marks=pytest.mark.stress)])


def shuffled(documents: list[Document]) -> list[Document]:
    """The documents, each in the place of another."""
    return [documents[(place * 7 + 3) % len(documents)] for place in range(len(documents))]


def test_shells(report: Report) -> None:
    documents = documents_of("shells", None, None)
    assert all(number_mark("shells", each, f"So {each.gold} left.").score == 1 for each in documents)
    wrong = [number_mark("shells", each, other.gold).score for each, other in zip(documents, shuffled(documents), strict=True)]
    assert sum(wrong) < 0.05 * len(documents)
    report(f"shells: gold {len(documents)} of {len(documents)}, shuffled {sum(wrong):.0f}")


@needs_data
def test_gsm8k(report: Report) -> None:
    documents = documents_of("gsm8k", DATA, None)
    assert all(number_mark("gsm8k", each, f"The answer is \\boxed{{{each.gold}}}.").score == 1 for each in documents)
    steps = [number_mark("gsm8k", each, f"Steps: 1, 2.\n#### {each.gold}") for each in documents]
    assert all(set(mark.scores.values()) == {1.0} for mark in steps)
    wrong = [number_mark("gsm8k", each, other.gold).score for each, other in zip(documents, shuffled(documents), strict=True)]
    assert sum(wrong) < 0.05 * len(documents)
    report(f"gsm8k: gold {len(documents)} of {len(documents)}, shuffled {sum(wrong):.0f}")


@needs_data
def test_math500(report: Report) -> None:
    documents = documents_of("math500", DATA, None)
    assert all(maths_mark(each, f"Thus \\boxed{{{each.gold}}}.").score == 1 for each in documents)
    unboxed = [each.number for each in documents[::25] if maths_mark(each, f"It is ${each.gold}$.").score != 1]
    assert not unboxed
    pairs = list(zip(documents, shuffled(documents), strict=True))[::10]
    wrong = [maths_mark(each, f"\\boxed{{{other.gold}}}").score for each, other in pairs]
    assert sum(wrong) < 0.05 * len(wrong)
    report(f"math500: gold {len(documents)} of {len(documents)}, shuffled {sum(wrong):.0f} of {len(wrong)}")


def answers_of(task: str, document: Document) -> dict[str, str]:
    """A right program in every usual form of an answer."""
    found = {name: form(whole(document, task), document.entry) for name, form in WHOLE.items()}
    return found | ({name: wrap(solutions()[document.number]) for name, wrap in BODY.items()} if task == "humaneval" else {})


@needs_data
@EVERY
@pytest.mark.parametrize("task", ["humaneval", "mbpp"])
def test_right_programs_pass_in_every_usual_form(task: str, every: int, jail: Jail, report: Report) -> None:
    documents = documents_of(task, DATA, None)
    forms = list(answers_of(task, documents[0]))
    assert task == "mbpp" or sorted(solutions()) == [each.number for each in documents] == list(range(164))
    tried = [(each, forms[place % len(forms)]) for place, each in enumerate(documents[::every])]
    if every == 1:
        tried = [(each, form) for each in documents for form in forms]
    programs: dict[tuple[int, str], str] = {}  # what forms have in common is run once
    for each, form in tried:
        program = program_of(task, each, answers_of(task, each)[form])
        programs.setdefault((each.number, "\n".join(line.rstrip() for line in program.strip("\n").splitlines())), form)
    tests = {each.number: each.tests for each in documents}
    failed = [(number, form) for (number, text), form in programs.items() if jail.run([text, *tests[number]]) != "passed"]
    assert failed == []
    pairs = list(zip(documents, shuffled(documents), strict=True))[::every]
    wrong = [code_mark(task, each, whole(other, task), jail).score for each, other in pairs]
    assert sum(wrong) < 0.05 * len(wrong)
    counts = f"{len(tried)} right answers, {len(programs)} programs, passed in {len(forms)} forms"
    report(f"{task}: {counts}; shuffled {sum(wrong):.0f} of {len(wrong)}")
