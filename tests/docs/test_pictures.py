"""The pictures of rules and the table of rules are what `make pictures` would write now."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

from dlstep import Config, Spec, init, strategies
from dlstep.cli.rules import RuleRow, rule_rows
from dlstep.core import options_of
from dlstep.rules import PLUGINS, own

from ..helpers.scripts import script

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "strategies"
ROWS = {row.name: row for row in rule_rows() if row.name in own()}
LARGEST = 15_000  # bytes


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    """Return the script that writes them."""
    return script("make_pictures")


@pytest.mark.parametrize("row", ROWS.values(), ids=list(ROWS))
def test_a_rule_has_a_picture_which_its_page_shows(row: RuleRow, maker: ModuleType) -> None:
    text = (PAGES / f"{row.name}.md").read_text()
    assert maker.page(text, row) == text, "run make pictures"
    (shown,) = re.findall(r"!\[[^]]*\]\((pictures/[^)]*)\)", text)
    picture = (PAGES / shown).read_text()
    assert shown == f"pictures/{row.name}.svg" and len(picture.encode()) < LARGEST
    titles = [text for element in ElementTree.fromstring(picture).iter() if (text := element.text or "").startswith(row.name)]
    assert [" on a grid:" in title for title in titles] == [True, False][2 - len(titles) :]
    assert len(titles) == (2 if "multi_bd" in row.carriers else 1)


def test_there_is_no_picture_without_a_rule() -> None:
    assert {path.stem for path in (PAGES / "pictures").iterdir()} == set(ROWS)


def test_a_picture_is_that_of_the_present_decode(maker: ModuleType) -> None:
    assert maker.picture(ROWS["remdm"]) == (PAGES / "pictures" / "remdm.svg").read_text(), "run make pictures"


def test_the_index_has_the_table_of_rules(maker: ModuleType) -> None:
    index = (PAGES / "index.md").read_text()
    assert f"> {maker.STORY.prompt.strip()}\n" in index
    table = index.partition("<!-- zoo -->\n")[2].partition("<!-- end of zoo -->\n")[0]
    assert maker.rules_table(list(ROWS.values())) == table, "run make pictures"
    lines = table.splitlines()[2:]
    assert [re.match(r"\| \[`(\w+)`\]\((\S+)\)", line).groups() for line in lines] == [  # pyright: ignore
        (name, f"{name}.md") for name in ROWS
    ]
    assert all(re.search(r", 20\d\d, \[arXiv (\d{4}\.\d{5})\]\(https://arxiv\.org/abs/\1\)", line) for line in lines)
    assert all(line.count(" | ") == 3 for line in lines)


@pytest.mark.parametrize("page", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda page: page.stem)
def test_links_to_files_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL))
    assert not [link for link in links if "://" not in link and not (page.parent / link).exists()]


def test_papers_are_found_in_a_source(maker: ModuleType) -> None:
    text = 'A et al., "One, two" (OT), 2025, arXiv 2501.00001; that of Three-4, 2026, arXiv 2601.00002, not (arXiv 2601.00003)'
    assert maker.papers(text) == (maker.Paper("One, two", 2025, "2501.00001"), maker.Paper("Three-4", 2026, "2601.00002"))


@pytest.mark.parametrize("row", ROWS.values(), ids=list(ROWS))
def test_carriers_are_those_that_take_the_rule(row: RuleRow) -> None:
    """Try every strategy, as another way to find them."""
    able: list[str] = []
    for name in strategies.own():
        value, rule = strategies.PLUGINS.value(name), PLUGINS.value(row.name)
        if "rule" not in options_of(value):
            continue
        given = {"rule": rule, **({"cache": "none"} if "cache" in options_of(value) else {})}
        if not refused(lambda value=value, given=given: init(Config(Spec(99, (98,), 100)), replace(value, **given))):
            able.append(name)
    assert row.carriers == tuple(able)


def refused(made: Callable[[], object]) -> bool:
    """Return whether this raises ValueError."""
    try:
        made()
    except ValueError:
        return True
    return False
