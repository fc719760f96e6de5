"""Expected answers score 100 %, those of other problems less than 5 %, for every task."""

import ast
import builtins
from collections.abc import Callable

import pytest
from given import DATA, needs_data

from dlstep.evaluate.documents import Document, documents_of
from dlstep.evaluate.jail import Jail
from dlstep.evaluate.maths import Maths
from dlstep.evaluate.scoring import code_mark, digits_mark, maths_mark, number_mark

Report = Callable[[str], None]
EVERY = pytest.mark.parametrize("every", [64, pytest.param(1, marks=pytest.mark.stress)])


def shuffled(documents: list[Document]) -> list[Document]:
    """The documents, each in the place of another."""
    return [documents[(place * 7 + 3) % len(documents)] for place in range(len(documents))]


def test_shells(report: Report) -> None:
    documents = documents_of("shells", None, None)
    assert all(digits_mark(each, f"So {each.gold} left.").score == 1 for each in documents)
    wrong = [digits_mark(each, other.gold).score for each, other in zip(documents, shuffled(documents), strict=True)]
    assert sum(wrong) < 0.05 * len(documents)
    report(f"shells: gold {len(documents)} of {len(documents)}, shuffled {sum(wrong):.0f}")


@needs_data
def test_gsm8k(report: Report) -> None:
    documents = documents_of("gsm8k", DATA, None)
    assert all(number_mark(each, f"The answer is \\boxed{{{each.gold}}}.").score == 1 for each in documents)
    assert all(number_mark(each, f"Steps: 1, 2.\n#### {each.gold}").score == 1 for each in documents)
    wrong = [number_mark(each, other.gold).score for each, other in zip(documents, shuffled(documents), strict=True)]
    assert sum(wrong) < 0.05 * len(documents)
    report(f"gsm8k: gold {len(documents)} of {len(documents)}, shuffled {sum(wrong):.0f}")


@needs_data
def test_math500(maths: Maths, report: Report) -> None:
    documents = documents_of("math500", DATA, None)
    assert all(maths_mark(each, f"Thus \\boxed{{{each.gold}}}.", maths).score == 1 for each in documents)
    unboxed = [each.number for each in documents[::25] if maths_mark(each, f"It is ${each.gold}$.", maths).score != 1]
    assert not unboxed
    pairs = list(zip(documents, shuffled(documents), strict=True))[::10]
    wrong = [maths_mark(each, f"\\boxed{{{other.gold}}}", maths).score for each, other in pairs]
    assert sum(wrong) < 0.05 * len(wrong)
    report(f"math500: gold {len(documents)} of {len(documents)}, shuffled {sum(wrong):.0f} of {len(wrong)}")


@needs_data
@EVERY
def test_mbpp(every: int, jail: Jail, report: Report) -> None:
    documents = documents_of("mbpp", DATA, None)
    chosen = documents[::every]
    notes = [code_mark("mbpp", each, f"```python\n{each.gold}\n```", jail).note for each in chosen]
    assert notes == ["passed"] * len(chosen)
    others = shuffled(documents)[::every]
    wrong = [code_mark("mbpp", each, other.gold, jail).score for each, other in zip(chosen, others, strict=True)]
    assert sum(wrong) < 0.05 * len(wrong)
    report(f"mbpp: gold {len(chosen)} of {len(chosen)}, shuffled {sum(wrong):.0f}")


@needs_data
@EVERY
def test_humaneval(every: int, jail: Jail, report: Report) -> None:
    """The file has no expected programs. A table of the tests' own cases stands in where these are equalities."""
    documents = documents_of("humaneval", DATA, None)
    gold = {each.number: table_of(each) for each in documents}
    known = [each for each in documents if gold[each.number]]
    assert len(known) >= 150
    chosen = known[::every]
    notes = [code_mark("humaneval", each, f"```python\n{gold[each.number]}```", jail).note for each in chosen]
    assert notes == ["passed"] * len(chosen)
    others = shuffled(known)[::every]
    wrong = [code_mark("humaneval", each, gold[other.number], jail).score for each, other in zip(chosen, others, strict=True)]
    assert sum(wrong) < 0.05 * len(wrong)
    report(
        f"humaneval: gold {len(chosen)} of {len(chosen)}; {len(known)} of {len(documents)} have one; shuffled {sum(wrong):.0f}"
    )


def table_of(document: Document) -> str:
    """A function that knows the answers of its tests; empty where a test is more than a call and its result."""
    lines: list[str] = []
    for node in ast.walk(ast.parse(document.tests[-1])):
        if isinstance(node, ast.Assert) and "candidate" in names_in(node):
            test, result = node.test, "True"
            if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
                test, result = test.operand, "False"
            elif isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq):
                test, result = test.left, ast.unparse(test.comparators[0])
            if not isinstance(test, ast.Call) or not isinstance(test.func, ast.Name) or test.func.id != "candidate":
                return ""
            given = ast.Tuple(test.args, ast.Load())
            if names_in(given) - set(dir(builtins)):
                return ""
            lines.append(f"    if repr(given) == repr({ast.unparse(given)}): return {result}\n")
    return f"def {document.entry}(*given):\n{''.join(lines)}" if lines else ""


def names_in(node: ast.AST) -> set[str]:
    """The names that a piece of code uses."""
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
