"""The tuner: evenly spread sets of options answer problems; held-out ones measure the frontier.

`answers.jsonl` has a line for each answer, in order of completion; a search resumes from it.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from time import perf_counter
from typing import Any

from ..core.options import StrategyOptions
from ..engine.json_lines import Line, append, opened, sealed, sealed_lines
from ..engine.run_lock import RunLock
from ..views.progress_bars import TuningBar, tuning_bar
from .answerer_pool import AnswererPool
from .checkpoint import ANSWERS, KEY_FIELDS, begin, key_of
from .documents import Document
from .items import items_of
from .jail import Jail
from .maths import WORKER
from .metrics import Answers, Point, frontier, knee
from .options import EvalOptions
from .runner import answer_all, check, jail_for, key_of_run
from .space import Space, TuneOptions, space_of

MOST_PROBLEMS = 200  # default limit of the problems of a search, and of held-out problems
STUDY = "dlstep tune"  # the name of a search as an Optuna study
ENOUGH = 100  # problems for each set of options; more answers go to more sets before more problems
COUNTS = ("tokens", "steps", "forwards")
FIELDS = KEY_FIELDS | {"score": float, "finish": str} | dict.fromkeys(COUNTS, int)


@dataclass(frozen=True, slots=True)
class TuningResult:
    """The result of a search: its frontier, slowest first, and the same sets on held-out problems.

    `tried` are all sets of options that answered the `problems`. `share` is the number of their
    answers, divided by that of the whole grid on all problems. `seconds` is the time of this
    process only.
    """

    space: Space
    tried: tuple[Point, ...]
    line: tuple[Point, ...]
    held: tuple[Point, ...]
    chosen: Point
    problems: int
    forwards: int
    share: float
    seconds: float = field(compare=False)

    @property
    def chosen_held(self) -> Point:
        """The chosen set on held-out problems."""
        return next(point for point in self.held if point.options == self.chosen.options)


class TrialStore:
    """The answers so far, and the file to which they are appended."""

    def __init__(self, folder: Path) -> None:
        self.answers = {key_of(line): sums_of(line) for line in sealed_lines(folder / ANSWERS, FIELDS)}
        self._file = opened(folder / ANSWERS)

    def note(self, row: Line, beside: Line) -> None:
        """Write an answer as one line."""
        line = {name: row[name] for name in (*KEY_FIELDS, "score", "steps", "finish", "error", "found")}
        line |= {"tokens": len(row["tokens"]), "forwards": beside["forwards"]}
        append(self._file, sealed(line))
        self.answers[key_of(line)] = sums_of(line)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def sums_of(line: Mapping[str, Any]) -> Answers:
    """Return the sums of one answer."""
    return Answers.counted(finish=line["finish"], score=line["score"], **{name: line[name] for name in COUNTS})


Problem = tuple[str, Document]  # task, document


def problems_of(documents: Mapping[str, list[Document]]) -> list[Problem]:
    """Return the problems of all tasks in turns, so that the first ones include all tasks."""
    turns = zip_longest(*([(task, document) for document in found] for task, found in documents.items()))
    return [problem for turn in turns for problem in turn if problem is not None]


def parted(problems: Sequence[Problem], tune: TuneOptions) -> tuple[Sequence[Problem], Sequence[Problem]]:
    """Return the problems of the search and the held-out ones. Raises ValueError for too few."""
    count = len(problems)
    if count < 2:
        raise ValueError(
            f"the tasks have {count} problem, but tuning needs some to search with and others to hold out: give more"
        )
    half = (count + 1) // 2 if tune.held_out is None else count - tune.held_out
    searched = tune.problems or max(1, min(half, MOST_PROBLEMS))
    held = tune.held_out or min(count - searched, MOST_PROBLEMS)
    if held < 1 or searched + held > count:
        raise ValueError(
            f"--problems {searched} and --held_out {max(held, 1)} are more than the {count} problems of the tasks: give fewer, "
            "or a larger --dataset_limit"
        )
    return problems[:searched], problems[searched : searched + held]


def plan(space: Space, tuning: TuneOptions, problems: int) -> tuple[list[StrategyOptions], int]:
    """Return the sets of options to try, and how many of the problems each of them answers."""
    answers = tuning.share * space.size * problems
    most = max(2, round(answers / min(problems, ENOUGH)))
    sets = space.spread(min(most, tuning.trials))
    return sets, max(1, min(problems, round(answers / len(sets))))


def points_of(
    pool: AnswererPool,
    jail: Jail | None,
    store: TrialStore,
    show: TuningBar,
    part: str,
    problems: Sequence[Problem],
    options: EvalOptions,
) -> list[Point]:
    """Decode the missing answers to some problems, and return each set of options with its sums."""
    documents: dict[str, list[Document]] = {}
    for task, document in problems:
        documents.setdefault(task, []).append(document)
    items, known = items_of(options, documents), len(store.answers)
    missing = [item for item in items if item.key not in store.answers]

    def note(_: int, row: Line, beside: Line) -> None:
        store.note(row, beside)
        show.answered(len(store.answers) - known, 0.0)

    show.begin(f"{part}: {len(options.grid)} sets, {len(problems)} problems", len(missing))
    answer_all(pool, jail, dict(enumerate(missing)), note)
    sums = dict.fromkeys(options.grid, Answers())
    for item in items:
        sums[item.options] += store.answers[item.key]
    return [Point(*each) for each in sums.items()]


def tune(
    pool: AnswererPool,
    options: EvalOptions,
    tuning: TuneOptions,
    documents: Mapping[str, list[Document]],
    *,
    given_options: Mapping[str, Any] | None = None,
    show: TuningBar | None = None,
) -> TuningResult:
    """Search, and measure the frontier on held-out problems; resume from `options.out`.

    Raises ValueError for options that cannot be varied, a folder with another search, and a search
    without a right answer.
    """
    start, about, folder = perf_counter(), pool.about, Path(options.out)
    space = space_of(tuning.over, about.config, about.strategy)
    searched, held = parted(problems_of(documents), tuning)
    check(about, options)
    check_folder(folder, tuning)
    bar = nullcontext(show) if show else tuning_bar(enabled=False)
    jail = jail_for(options)
    with closing(WORKER), closing(RunLock(folder)), bar as show:
        over = {name: list(values) for name, values in space.axes}
        searching = {"over": over, "problems": len(searched), "held_out": len(held), "share": tuning.share}
        key = key_of_run(options, documents, about) | {"tune": searching | {"trials": tuning.trials}}
        begin(folder, {"key": key, "told": dict(given_options or {}), "machines": [about.machine]})
        with closing(TrialStore(folder)) as store:
            search = partial(points_of, pool, jail, store, show)
            sets, problems = plan(space, tuning, len(searched))
            tried = search("search", searched[:problems], replace(options, grid=tuple(sets)))
            if not any(point.accuracy > 0 for point in tried):
                raise ValueError(
                    f"no answer of {len(sets) * problems} was right, so nothing can be chosen: look at the answers "
                    "of `dlstep eval` and `dlstep report` first"
                )
            line = frontier(tried)
            results = search("held out", held, replace(options, grid=tuple([point.options for point in line])))
    forwards = sum(point.sums.forwards for point in tried)
    share = len(sets) * problems / (space.size * len(searched))
    chosen, seconds = chosen_of(line, tuning.at_least), perf_counter() - start
    return TuningResult(space, tuple(tried), tuple(line), tuple(results), chosen, problems, forwards, share, seconds)


def check_folder(folder: Path, tuning: TuneOptions) -> None:
    """Raise ValueError for a folder with answers, unless the search in it is to resume."""
    path = folder / ANSWERS
    if not tuning.resume and path.exists() and path.stat().st_size:
        raise ValueError(f"--out {folder} holds a search or a run: add --resume to continue a search, or give another folder")


def chosen_of(line: Sequence[Point], at_least: float | None) -> Point:
    """Return the knee of a frontier, or its fastest point with a share of the best accuracy."""
    if at_least is None:
        return knee(line)
    best = max(point.accuracy for point in line)
    return [point for point in line if point.accuracy >= at_least * best][-1]


def write_study(path: Path, space: Space, points: Iterable[Point]) -> None:
    """Write the points as an Optuna study into an SQLite file, replacing an earlier one.

    Raises ValueError for a file that is not a database of Optuna.
    """
    import optuna
    from sqlalchemy.exc import DatabaseError

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = f"sqlite:///{path}"
    try:
        if path.exists() and STUDY in optuna.get_all_study_names(storage):
            optuna.delete_study(study_name=STUDY, storage=storage)
        study = optuna.create_study(study_name=STUDY, storage=storage, directions=["maximize", "maximize"])
        study.set_user_attr("values", ["accuracy", "speed"])
    except DatabaseError as error:
        raise ValueError(f"--study {path} holds no study of Optuna: give another file") from error
    axes = {name: distribution(values) for name, values in space.axes}
    for point in points:
        figures = {"problems": point.sums.count, "accuracy_interval": point.sums.accuracy_interval}
        params, values = dict(point.options), [point.accuracy, point.speed]
        study.add_trial(optuna.trial.create_trial(params=params, distributions=axes, values=values, user_attrs=figures))


def distribution(values: tuple[Any, ...]) -> Any:
    """Return the values of an option as a distribution of Optuna."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    for kind, numbers in ((int, IntDistribution), (float, FloatDistribution)):
        if all(type(value) is kind for value in values):
            return numbers(values[0], values[-1])
    return CategoricalDistribution(values)
