"""The pictures of rules and the table of rules are what `make pictures` would write now."""

import re
from xml.etree import ElementTree

import pytest

from dlstep.cli.rules import rule_row
from dlstep.rules import own

from ..helpers.scripts import script
from .blocks import ROOT

PAGES = ROOT / "docs" / "strategies"
ROWS = {name: rule_row(name) for name in own()}
LARGEST = 25_000  # bytes


@pytest.fixture(scope="module")
def maker():
    """Return the script that writes them."""
    return script("make_pictures")


@pytest.mark.parametrize("row", ROWS.values(), ids=list(ROWS))
def test_a_rule_has_a_picture_which_its_page_shows(row, maker):
    text = (PAGES / f"{row['name']}.md").read_text()
    assert maker.page(text, row) == text, "run make pictures"
    shown = re.findall(r"!\[[^]]*\]\(pictures/([^)]*)\)", text)
    assert shown == [f"{row['name']}_{kind}.svg" for kind in (["grid"] if "multi_bd" in row["carriers"] else []) + ["canvas"]]
    for name in shown:
        picture = (PAGES / "pictures" / name).read_text()
        kind, texts = name[:-4].rpartition("_")[2], [element.text or "" for element in ElementTree.fromstring(picture).iter()]
        assert any(text.startswith(f"{row['name']} on a {kind}: ") for text in texts) and len(picture.encode()) < LARGEST


def test_there_is_no_picture_without_a_rule():
    assert {path.stem.rpartition("_")[0] for path in (PAGES / "pictures").iterdir()} == set(ROWS)


def test_a_picture_is_that_of_the_present_decode(maker):
    for name, picture in maker.pictures(ROWS["remdm"]).items():
        assert picture == (PAGES / "pictures" / name).read_text(), "run make pictures"


def test_the_index_has_the_table_of_rules(maker):
    index = (PAGES / "index.md").read_text()
    assert f"> {maker.STORY.prompt.strip()}\n" in index
    table = index.partition("<!-- zoo -->\n")[2].partition("<!-- end of zoo -->\n")[0]
    assert maker.rules_table(list(ROWS.values())) == table, "run make pictures"
