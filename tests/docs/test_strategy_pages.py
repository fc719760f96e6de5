"""Every strategy has a page with an example, every rule one with five rows by hand, both with a complete table.

test_blocks.py runs the examples.
"""

import re
from dataclasses import MISSING, fields

import pytest

from dlstep import rules, strategies
from dlstep.core import Rule

from .blocks import ROOT

FOLDER = ROOT / "docs" / "strategies"
OWNERS = {
    **{name: strategies.load(name) for name in strategies.available()},
    **{name: rules.load(name) for name in rules.available()},
}
NAMES = [name for name in OWNERS if (FOLDER / f"{name}.md").exists()]
RULES = [name for name in NAMES if name in rules.available()]
BY_HAND = "## Five rows by hand\n"


def examples(page):
    """Return the code blocks and what they print. Every code block must be followed by its output."""
    pairs = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", page, re.DOTALL)
    assert page.count("```python\n") == len(pairs), "a code block of the page is not followed by its output"
    return pairs


def shown(default):
    """Return a default as the table shows it: of a rule, the name of its module."""
    return type(default).__module__.rpartition(".")[2] if isinstance(default, Rule) else str(default)


def test_every_strategy_and_every_rule_has_a_page_and_a_unique_name():
    assert not set(strategies.available()) & set(rules.available())
    assert sorted({path.stem for path in FOLDER.glob("*.md")} - {"index"}) == sorted(OWNERS)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in RULES])
def test_the_page_of_a_strategy_has_one_example_of_a_decode(name):
    ((_, output),) = examples((FOLDER / f"{name}.md").read_text())
    assert len(output.splitlines()) >= 8


@pytest.mark.parametrize("name", RULES)
def test_a_page_of_a_rule_has_five_rows_by_hand(name):
    _, heading, page = (FOLDER / f"{name}.md").read_text().partition(BY_HAND)
    assert heading, "the page of a rule needs a section with five rows by hand"
    page = page.partition("\n## ")[0]
    if not (pairs := examples(page)):  # a table, which the tests of the rule check
        assert len(re.findall(r"^\|", page, re.MULTILINE)) >= 2 + 5
        return
    ((_, output),) = pairs
    assert len(output.splitlines()) >= 5


@pytest.mark.parametrize("name", NAMES)
def test_the_table_names_every_option_with_its_default(name):
    page = (FOLDER / f"{name}.md").read_text()
    table = dict(re.findall(r"^\| `(\w+)` \| `?\"?([^`\"|]*)\"?`? \| [^|]* \|$", page, re.MULTILINE))
    assert table == {field.name: shown(field.default) for field in fields(OWNERS[name]) if field.default is not MISSING}
