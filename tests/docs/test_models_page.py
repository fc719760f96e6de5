"""The page about models is what the command prints, and the matrix knows the same families."""

import json
from pathlib import Path

import pytest

from dlstep.cli import main
from dlstep.models import FAMILIES

PAGE = Path(__file__).parents[2] / "docs" / "models.md"


def test_the_page_is_current(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--markdown"]) == 0
    assert capsys.readouterr().out == PAGE.read_text(encoding="utf-8")


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
