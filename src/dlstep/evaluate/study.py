"""The sets of options that a tuner tried as an Optuna study; needs the extra `tune`."""

from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .frontier import Point
from .space import Space

DIRECTIONS = ("maximize", "maximize")
NAMES = ("accuracy", "speed")
STUDY = "dlstep tune"


def check_optuna(reason: str) -> None:
    """Raise ValueError if Optuna is not installed."""
    if find_spec("optuna") is None:
        raise ValueError(f"{reason} needs optuna: pip install 'dlstep[tune]'")


def write_study(path: Path, space: Space, points: Iterable[Point]) -> None:
    """Write the points as trials of an Optuna study into an SQLite file, replacing an earlier study of this name.

    Raises ValueError for a file that is not a database of Optuna.
    """
    import optuna
    from sqlalchemy.exc import DatabaseError

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = f"sqlite:///{path}"
    try:
        known = [] if not path.exists() else optuna.get_all_study_names(storage)
        if STUDY in known:
            optuna.delete_study(study_name=STUDY, storage=storage)
        study = optuna.create_study(study_name=STUDY, storage=storage, directions=DIRECTIONS)
        study.set_user_attr("values", list(NAMES))
    except DatabaseError as error:
        raise ValueError(f"--study {path} holds no study of Optuna: give another file") from error
    axes = {name: distribution(values) for name, values in space.axes}
    study.add_trials(
        [
            optuna.trial.create_trial(
                params=dict(point.options),
                distributions=axes,
                values=[point.accuracy, point.speed],
                user_attrs={"problems": point.sums.count, "accuracy_interval": point.sums.accuracy_interval},
            )
            for point in points
        ]
    )


def distribution(values: tuple[Any, ...]) -> Any:
    """Return the values of an option as a distribution of Optuna."""
    import optuna

    if all(type(value) is int for value in values):
        return optuna.distributions.IntDistribution(values[0], values[-1])
    if all(type(value) is float for value in values):
        return optuna.distributions.FloatDistribution(values[0], values[-1])
    return optuna.distributions.CategoricalDistribution(values)
