"""Rows of benchmarks: their progress, and a check that failed."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from benchmarks.entry import report, run


@dataclass
class Row:
    name: str
    us: float
    equal: bool = True


def rows() -> Iterator[Row]:
    yield Row("one", 1.5)
    yield Row("other", 2.5, equal=False)


def test_progress_names_each_row_and_the_exit_code_is_1_if_a_result_is_wrong(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["rows.py", "--json"])
    with pytest.raises(SystemExit, match="1"):
        run("Rows.", rows)
    printed = capsys.readouterr()
    assert printed.err.splitlines() == ["measured 1: name one, equal True", "measured 2: name other, equal False"]
    assert [row["name"] for row in json.loads(printed.out)] == ["one", "other"]


def test_a_table_has_the_columns_that_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(list(rows())[:1], ("name", "us"), as_json=False) == 0
    heading, line = capsys.readouterr().out.splitlines()
    assert heading.split() == ["name", "us"] and line.split() == ["one", "1.50"]
