"""`dlstep strategies`."""

import json
import re

import pytest

from dlstep import strategies
from dlstep.cli import main
from dlstep.cli.strategies import strategy_row

from .failing import Captured


def test_strategies_are_listed_with_their_options(capsys: Captured) -> None:
    assert main(["strategies"]) == 0
    out = capsys.readouterr().out
    assert "multi_bd" in out
    assert "d2f" in out
    assert main(["strategies", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["multi_bd"]["model"] == "tiny-bd"
    assert rows["d2f"]["options"]["buffer_size"] == 4


@pytest.mark.parametrize("arguments", [["strategies"], ["strategies", "--matrix"]])
def test_lists_of_strategies_fit_80_columns(arguments: list[str], capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80 and "\N{HORIZONTAL ELLIPSIS}" not in out
    for row in map(strategy_row, strategies.available()):
        assert re.search(rf"\b{row['name']}\b", out)
        if arguments == ["strategies"]:
            assert all(f"{name}={'null' if value is None else value}" in out for name, value in row["options"].items())
