"""`dlstep bench decode`: a row for each batch size, in 80 columns or as JSON."""

import json

from dlstep.cli import bench_decode, main
from dlstep.cli.bench_decode import measure_decode
from dlstep.engine.config import EngineConfig
from dlstep.engine.loader import load_engine
from training.model import fresh_model, save_checkpoint
from training.recipes import TINY_BD

ROW = {"batch": 32, "rows": 828.0, "step_us": 123456.78}


def test_rows_are_printed(monkeypatch, capsys):
    monkeypatch.setattr(bench_decode, "measure_decode", lambda engine: [ROW])
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["bench", "decode"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80 and out.count("123456.78") == 1
    assert main(["bench", "decode", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [ROW]


def test_rows_of_the_measurement(tmp_path):
    save_checkpoint(fresh_model(TINY_BD, 0), TINY_BD, tmp_path)
    (row,) = measure_decode(load_engine(EngineConfig(str(tmp_path), device="cpu", enforce_eager=True)), (2,), repetitions=2)
    assert row["batch"] == 2 and row["rows"] >= 16
    assert row["step_us"] > 0
