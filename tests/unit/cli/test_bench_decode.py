"""`dlstep bench decode`: a row for each batch size, in 80 columns or as JSON."""

import json

import pytest

from dlstep.cli import main
from dlstep.engine import step_times

ROW = {"batch": 32, "rows": 828.0, "step_us": 123456.78, "forward_us": 123456.78, "outside_share": 0.13}


def test_rows_are_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(step_times, "measure_decode", lambda checkpoint: [ROW])
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["bench", "decode"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80 and out.count("123456.78") == 2
    assert main(["bench", "decode", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [ROW]
