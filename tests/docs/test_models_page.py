"""The page about models contains the table that the command prints, and the matrix has the same families."""

import json
from pathlib import Path

import pytest

from dlstep.cli import main
from dlstep.models import FAMILIES

from ..helpers.scripts import script

PAGE = Path(__file__).parents[2] / "docs" / "models.md"


def test_the_page_has_the_table_of_families() -> None:
    table = script("make_pictures").families_table()
    assert f"<!-- families -->\n{table}<!-- end of families -->\n" in PAGE.read_text(encoding="utf-8"), "run make pictures"


def test_the_page_has_all_thresholds_of_families() -> None:
    thresholds = {family.name: family.options.get("accept_threshold") for family in FAMILIES.values()}
    named = ", ".join(f"`{name}` {value}" for name, value in thresholds.items() if value is not None)
    assert f"  Families with a different default `accept_threshold`: {named}.\n" in PAGE.read_text(encoding="utf-8")


def test_the_command_lists_every_family(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == list(FAMILIES)
    assert all(row["strategies"][0] == (FAMILIES[row["name"]].decoding_strategy or row["strategies"][0]) for row in rows)
    assert main(["models"]) == 0
    assert "llada2dot1_mini" in capsys.readouterr().out


def test_the_matrix_has_every_family(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["strategies", "--matrix", "--json"]) == 0
    rows = {row["strategy"]: row["families"] for row in json.loads(capsys.readouterr().out)}
    assert all(list(families) == list(FAMILIES) for families in rows.values())
    assert rows["multi_bd"]["sdar"] is rows["dual_cache"]["llada"] is rows["dmax"]["llada2_mini_dmax"] is None
    assert "bidirectional" in rows["multi_bd"]["dream"]
