"""Proposals by Optuna, for more options than a grid can have, and the search as an Optuna study; needs the extra `tune`."""

from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .frontier import Point
from .search import Place, Space

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.trial import Trial

MOST_AXES = 2  # that are searched without Optuna
WAVE = 16  # sets of options that are proposed together
TRIALS = 96
PATIENCE = 4  # proposals for each new place
DIRECTIONS = ("maximize", "maximize")
NAMES = ("accuracy", "speed")
STUDY = "dlstep tune"


def check_optuna(reason: str) -> None:
    """Raise ValueError where Optuna is not installed."""
    if find_spec("optuna") is None:
        raise ValueError(f"{reason} needs optuna: pip install 'dlstep[tune]'")


class Sampled:
    """Waves of places that Optuna's multi-objective TPE proposes; the same figures always lead to the same places."""

    def __init__(self, space: Space, *, trials: int = TRIALS, seed: int = 0) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._axes: dict[str, BaseDistribution] = {
            name: optuna.distributions.IntDistribution(0, len(values) - 1) for name, values in space.axes
        }
        self._study: Study = optuna.create_study(directions=DIRECTIONS, sampler=optuna.samplers.TPESampler(seed=seed))
        self._left = trials
        self._asked: dict[Place, Trial] = {}

    def first(self) -> list[Place]:
        """A wave at random."""
        return self._wave({})

    def more(self, tried: Mapping[Place, Point]) -> list[Place]:
        """The next wave, once the last one is told; nothing more once one was not tried, or all trials are over."""
        if not self._asked or not self._asked.keys() <= tried.keys():
            return []
        for place, trial in self._asked.items():
            self._study.tell(trial, list(figures(tried[place])))
        return self._wave(tried)

    def _wave(self, tried: Mapping[Place, Point]) -> list[Place]:
        self._asked = {}
        wave = min(WAVE, self._left)
        for _ in range(PATIENCE * wave):
            trial = self._study.ask(self._axes)
            place = tuple(trial.params[name] for name in self._axes)
            if place in tried:
                self._study.tell(trial, list(figures(tried[place])))
            elif place not in self._asked:
                self._asked[place] = trial
            if len(self._asked) == wave:
                break
        self._left -= len(self._asked)
        return list(self._asked)


def figures(point: Point) -> tuple[float, float]:
    """The two figures that are sought: accuracy and speed."""
    return point.accuracy, point.speed


def write_study(path: Path, space: Space, points: Iterable[Point]) -> None:
    """Write the points as trials of an Optuna study in an SQLite file, in place of one that was written there before.

    Raises ValueError for a file that is no such study.
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
                values=list(figures(point)),
                user_attrs={"problems": point.sums.count, "accuracy_error": point.sums.accuracy_error},
            )
            for point in points
        ]
    )


def distribution(values: tuple[Any, ...]) -> Any:
    """The values of an option in Optuna's words."""
    import optuna

    if all(type(value) is int for value in values):
        return optuna.distributions.IntDistribution(values[0], values[-1])
    if all(type(value) is float for value in values):
        return optuna.distributions.FloatDistribution(values[0], values[-1])
    return optuna.distributions.CategoricalDistribution(values)
