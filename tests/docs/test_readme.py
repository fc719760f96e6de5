"""The README and the pages are short, and the moving picture is that of the present decode."""

import re
from dataclasses import fields
from xml.etree import ElementTree

from dlstep.core import Choice

from ..helpers.scripts import script
from .blocks import ROOT

README = (ROOT / "README.md").read_text()
LONGEST, LARGEST = 180, 200_000  # lines, bytes
MOST_WORDS = 59_060  # of all pages


def test_the_moving_picture_is_that_of_the_present_decode():
    maker = script("make_moving_picture")
    stored = maker.PICTURE.read_text()
    assert maker.picture() == stored, "run make moving-picture"
    ElementTree.fromstring(stored)
    assert len(stored.encode()) < LARGEST
    (words,) = re.findall(rf"!\[([^]]*)\]\({maker.PICTURE.relative_to(ROOT)}\)", README)
    assert re.findall(r"\d+", words) == re.findall(r">(\d+) forward passes", stored)


def test_no_option_of_the_rule_hides_a_method():
    rule = script("make_moving_picture").rule_of_readme()
    assert not {field.name for field in fields(rule)} & {*dir(Choice)}


def test_the_readme_is_short():
    assert len(README.splitlines()) <= LONGEST


def test_the_pages_are_short():
    assert sum(len(page.read_text().split()) for page in (ROOT / "docs").rglob("*.md")) <= MOST_WORDS
