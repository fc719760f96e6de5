"""Every paper that a page or a docstring of a strategy or a rule names has its arXiv number, and both name the same ones."""

import re

import pytest

from .blocks import ROOT

PAGES = sorted(path for path in (ROOT / "docs" / "strategies").glob("*.md") if path.stem != "index")
SOURCES = [path for folder in ("rules", "strategies") for path in sorted((ROOT / "src" / "dlstep" / folder).glob("[!_]*.py"))]
NUMBER = re.compile(r"\d{4}\.\d{5}")
# A title in asterisks or quotation marks, perhaps a short name after it, and a year.
WITHOUT_NUMBER = re.compile(r"[*\"]( \([\w ]+\))?, 20\d\d(?!, arXiv \d{4}\.\d{5})")


def prose(path):
    """Return the text of a page, or the docstring of a module, on one line."""
    text = path.read_text()
    return " ".join((text if path.suffix == ".md" else text.split('"""')[1]).split())


@pytest.mark.parametrize("path", [*PAGES, *SOURCES], ids=lambda path: path.name)
def test_papers_have_numbers(path):
    assert not [found[0] for found in WITHOUT_NUMBER.finditer(prose(path))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_names_the_papers_of_its_module(page):
    (module,) = [path for path in SOURCES if path.stem == page.stem]
    assert set(NUMBER.findall(prose(module))) <= set(NUMBER.findall(prose(page)))
