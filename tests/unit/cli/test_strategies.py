"""`dlstep strategies` and `dlstep rules`."""

import json
import re

import pytest

from dlstep import rules, strategies
from dlstep.cli.rules import rule_row
from dlstep.cli.strategies import strategy_row
from dlstep.engine.option_rows import option_rows, parts_of


def test_strategies_are_listed_with_their_options_in_80_columns(printed, monkeypatch):
    rows = {row["name"]: row for row in json.loads(printed("strategies --json"))}
    assert rows["multi_bd"]["model"] == "tiny-bd" and rows["d2f"]["options"]["buffer_size"] == 4
    monkeypatch.setenv("COLUMNS", "80")
    out = printed("strategies")
    assert max(map(len, out.splitlines())) <= 80 and "\N{HORIZONTAL ELLIPSIS}" not in out
    for row in map(strategy_row, strategies.available()):
        assert re.search(rf"\b{row['name']}\b", out)
        assert all(f"{name}={'null' if value is None else value}" in out for name, value in row["options"].items())


def test_rules_are_listed_with_the_strategies_that_accept_them(printed):
    out = " ".join(printed("rules").split())
    for row in map(rule_row, rules.available()):
        assert f"{row['name']}, for {', '.join(row['carriers'])}" in out and row["source"] in out
    assert [row["name"] for row in json.loads(printed("rules --json"))] == [*rules.available()]


@pytest.mark.parametrize(
    "command, name, value",
    [(command, name, group.value(name)) for command, group in (("rules", rules.PLUGINS), ("strategies", strategies.PLUGINS))
     for name in group.available()],
)  # fmt: skip
def test_every_option_of_a_rule_or_strategy_is_explained(command, name, value, printed):
    rows = {row.name for part in parts_of(value) for row in option_rows(part)}
    out = printed(f"{command} {name}")
    assert all(f"  --{option}\n" in out for option in rows)
    assert {row["name"] for row in json.loads(printed(f"{command} {name} --json"))} == rows
