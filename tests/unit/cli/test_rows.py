"""Rows of measurements: their progress, and a check that failed."""

import json
from dataclasses import dataclass

import pytest

from dlstep.cli.rows import followed, report


@dataclass
class Row:
    name: str
    us: float
    equal: bool = True


def test_progress_names_each_row(capsys: pytest.CaptureFixture[str]) -> None:
    rows = followed(iter([Row("one", 1.5), Row("other", 2.5)]), lambda row: row.name, 2)
    assert capsys.readouterr().err.splitlines() == ["measured 1 of 2: one", "measured 2 of 2: other"]
    assert report(rows, as_json=True) == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)] == ["one", "other"]


def test_the_exit_code_is_1_if_a_result_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert report([Row("one", 1.5), Row("other", 2.5, equal=False)], ("name", "us"), as_json=False) == 1
    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading.split() == ["name", "us"] and [line.split() for line in lines] == [["one", "1.50"], ["other", "2.50"]]
