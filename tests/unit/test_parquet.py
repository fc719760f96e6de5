"""Rows as Parquet files, and as tables of other packages."""

import sys

import pytest
from pyarrow import parquet

from dlstep import SamplingParams, write_parquet

PROMPT = "Max has 53 shells. Later Max buys 39 more."


def test_rows_come_back_from_a_file(llm, tmp_path):
    session = llm.session()
    for seed in (1, 2):
        session.submit(PROMPT, SamplingParams(max_tokens=9, temperature=1.0, seed=seed))
    session.run()
    outputs = [row for number in (0, 1) for row in session.output(number).rows()]
    for rows in (outputs, session.trace.rows()):
        assert {type(value) for row in rows for value in row.values()} <= {str, int, float, bool, type(None)}
        write_parquet(tmp_path / "rows.parquet", rows)
        assert parquet.read_table(tmp_path / "rows.parquet").to_pylist() == rows


def test_what_cannot_be_written_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "rows.parquet"
    with pytest.raises(ValueError, match=r"there are no rows to write to .*: give at least one"):
        write_parquet(path, [])
    with pytest.raises(ValueError, match=r"row 1 has the keys b, and row 0 has a: use one file for each"):
        write_parquet(path, [{"a": 1}, {"b": 2}])
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, "pyarrow")
    with pytest.raises(ValueError, match=r"write_parquet needs pyarrow: pip install 'dlstep\[parquet\]'"):
        write_parquet(path, [{"a": 1}])
    assert not path.exists()
