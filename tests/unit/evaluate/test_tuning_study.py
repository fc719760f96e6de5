"""A study that Optuna reads."""

import sqlite3
from pathlib import Path

import pytest

from dlstep.evaluate.metrics import Answers, Point
from dlstep.evaluate.space import Space
from dlstep.evaluate.tuning import write_study


def test_the_study_is_one_that_optuna_reads(tmp_path: Path) -> None:
    import optuna

    sums = [Answers.counted(score=1.0, tokens=48, forwards=forwards, steps=forwards) for forwards in (20, 10)]
    space = Space((("buffer_size", (1, 4)), ("order", ("confidence", "entropy")), ("accept_threshold", (0.5, 0.9))))
    points = [Point(space.at((place, place, place)), each) for place, each in enumerate(sums)]
    for _ in range(2):  # the second time in place of the first
        write_study(tmp_path / "study.db", space, points)
    (name,) = optuna.get_all_study_names(f"sqlite:///{tmp_path / 'study.db'}")
    study = optuna.load_study(study_name=name, storage=f"sqlite:///{tmp_path / 'study.db'}")
    assert [trial.params for trial in study.trials] == [dict(point.options) for point in points]
    assert [trial.values for trial in study.trials] == [[point.accuracy, point.speed] for point in points]
    (tmp_path / "text.db").write_text("no database " * 1000)
    with pytest.raises(ValueError, match="holds no study of Optuna: give another file"):
        write_study(tmp_path / "text.db", space, points)
    with sqlite3.connect(tmp_path / "study.db") as base:
        assert base.execute("select count(*) from trials").fetchone() == (2,)
    base.close()
