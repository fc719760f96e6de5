"""Every mutant of the catalogue still applies, so that an edit does not silently take one out of it."""

import ast

import pytest

from ..mutants.__main__ import MUTANTS
from ..mutants.mirror import TESTS, unit_tests
from ..mutants.mutant import applied


@pytest.mark.full
def test_every_mutant_applies_compiles_and_differs():
    stale = []
    for mutant in MUTANTS:
        source = mutant.path.read_text()
        try:
            same = ast.dump(ast.parse(applied(source, mutant))) == ast.dump(ast.parse(source))
        except ValueError as error:
            stale.append(str(error))
        else:
            stale += [f"{mutant}: the replacement changes nothing"] if same else []
    assert not stale, "\n".join(stale)


def test_the_catalogue_holds_at_most_320_different_mutants():
    assert len({(mutant.file, mutant.function, mutant.fault) for mutant in MUTANTS}) == len(MUTANTS) <= 320


def test_every_mutant_has_tests_that_exist():
    named = {name for mutant in MUTANTS for name in mutant.noticed_by}
    assert not [name for name in named if not (TESTS / name).exists()]
    assert not {mutant.file for mutant in MUTANTS if not mutant.noticed_by and not unit_tests(mutant.file)}
