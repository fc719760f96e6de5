"""Rows of measurements: their progress, and a check that failed."""

from dataclasses import dataclass

import pytest

from dlstep.cli.rows import report


@dataclass
class Row:
    name: str
    us: float
    equal: bool = True


def test_the_exit_code_is_1_if_a_result_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert report([Row("one", 1.5), Row("other", 2.5, equal=False)], ("name", "us"), as_json=False) == 1
    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading.split() == ["name", "us"] and [line.split() for line in lines] == [["one", "1.50"], ["other", "2.50"]]
