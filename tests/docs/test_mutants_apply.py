"""Every mutant of the catalogue still applies, so that an edit does not silently take one out of it."""

import ast
import re

import pytest

from ..mutants.__main__ import MUTANTS
from ..mutants.mirror import TESTS, unit_tests
from ..mutants.mutant import applied, in_file


def test_every_mutant_applies_compiles_and_differs() -> None:
    stale: list[str] = []
    for mutant in MUTANTS:
        source = mutant.path.read_text(encoding="utf-8")
        try:
            same = ast.dump(ast.parse(applied(source, mutant))) == ast.dump(ast.parse(source))
        except ValueError as error:
            stale.append(str(error))
        else:
            stale += [f"{mutant}: the replacement changes nothing"] if same else []
    assert not stale, "\n".join(stale)


def test_the_catalogue_holds_at_most_300_different_mutants() -> None:
    assert len({(mutant.file, mutant.function, mutant.fault) for mutant in MUTANTS}) == len(MUTANTS) <= 300


def test_every_mutant_has_tests_that_exist() -> None:
    named = {name for mutant in MUTANTS for name in mutant.noticed_by}
    assert not [name for name in named if not (TESTS / name).exists()]
    assert not {mutant.file for mutant in MUTANTS if not mutant.noticed_by and not unit_tests(mutant.file)}


SOURCE = """
class Counter:
    @property
    def next(self):  # a comment
        return (self.count +
                1)  # moved
"""


def test_applied_ignores_the_format_of_the_source() -> None:
    (mutant,) = in_file("core/counter.py", ("Counter.next", "count twice", "self.count + 1", "self.count + 2"))
    lines = ["", "class Counter:", "    @property", "    def next(self):", "        return self.count + 2", ""]
    assert applied(SOURCE, mutant) == "\n".join(lines)


@pytest.mark.parametrize(
    ("function", "fragment", "replacement", "remedy"),
    [
        ("Counter.last", "self.count", "0", "Correct the mutant's file or function"),
        ("Counter.next", "self.total", "0", "python -m tests.mutants.mutant core/counter.py Counter.next"),
        ("Counter.next", "self", "0", "occurs 2 times"),
        ("Counter.next", "self.count", "(", "Correct the replacement"),
    ],
)
def test_applied_names_the_mutant_and_the_remedy(function: str, fragment: str, replacement: str, remedy: str) -> None:
    (mutant,) = in_file("core/counter.py", (function, "count twice", fragment, replacement))
    with pytest.raises(ValueError, match=re.escape(remedy)) as caught:
        applied(SOURCE, mutant)
    assert str(caught.value).startswith(f"core/counter.py {function}: count twice: ")
