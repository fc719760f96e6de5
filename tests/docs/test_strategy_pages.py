"""Every strategy and every rule has a page with a complete table of options.

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


def shown(default):
    """Return a default as the table shows it: of a rule, the name of its module."""
    return type(default).__module__.rpartition(".")[2] if isinstance(default, Rule) else str(default)


def test_every_strategy_and_every_rule_has_a_page_and_a_unique_name():
    assert not set(strategies.available()) & set(rules.available())
    assert sorted({path.stem for path in FOLDER.glob("*.md")} - {"index"}) == sorted(OWNERS)


@pytest.mark.parametrize("name", NAMES)
def test_the_table_names_every_option_with_its_default(name):
    page = (FOLDER / f"{name}.md").read_text()
    table = dict(re.findall(r"^\| `(\w+)` \| `?\"?([^`\"|]*)\"?`? \| [^|]* \|$", page, re.MULTILINE))
    assert table == {field.name: shown(field.default) for field in fields(OWNERS[name]) if field.default is not MISSING}
