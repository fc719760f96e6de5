"""Every mutant still applies, so that a reworded or moved line does not silently take a mutant out of the catalogue."""

from ..mutants.__main__ import MUTANTS, mutated


def test_the_text_of_every_mutant_occurs_once_in_its_file() -> None:
    stale: list[str] = []
    for mutant in MUTANTS:
        try:
            mutated(mutant)
        except ValueError as error:
            stale.append(str(error))
    assert not stale, "\n".join(stale)
