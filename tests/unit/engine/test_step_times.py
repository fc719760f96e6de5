"""The measurement of decode steps runs and its figures fit together."""

from dlstep.engine.step_times import measure_decode
from dlstep.models import load_checkpoint
from training.model import fresh_model, save_checkpoint
from training.recipes import TINY_BD


def test_rows_of_the_measurement(tmp_path):
    save_checkpoint(fresh_model(TINY_BD, 0), TINY_BD, tmp_path)
    (row,) = measure_decode(load_checkpoint(tmp_path), (2,), repetitions=2)
    assert row["batch"] == 2
    assert row["rows"] >= 16
    assert 0 < row["forward_us"] < row["step_us"]
    assert 0 < row["outside_share"] < 1
