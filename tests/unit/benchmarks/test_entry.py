"""Rows of benchmarks, and their progress."""

import json

from benchmarks.entry import print_rows, run


def rows():
    yield {"name": "one", "us": 1.5}
    yield {"name": "other", "us": 2.5}


def test_progress_names_each_row(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["rows.py", "--json"])
    run("Rows.", rows)
    printed = capsys.readouterr()
    assert printed.err.splitlines() == ["measured 1: name one", "measured 2: name other"]
    assert [row["name"] for row in json.loads(printed.out)] == ["one", "other"]


def test_a_table_has_the_columns_that_are_named(capsys):
    print_rows([{"name": "one", "us": 1.5, "more": 1}], ("name", "us"))
    heading, line = capsys.readouterr().out.splitlines()
    assert heading.split() == ["name", "us"] and line.split() == ["one", "1.50"]
