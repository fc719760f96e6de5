"""Compare `dlstep tune` with other methods of choosing sets of options.

Whole grids of options of tiny-bd are decoded. The tuner, an even grid and the samplers of Optuna
are then simulated on the answers, over many orders of the problems. The rows have the share of the
grid's hypervolume on held-out problems that each method finds. Takes minutes; the exit code is 1 if
another method finds more than `dlstep tune`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from random import Random
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

from dlstep.core.options import StrategyOptions
from dlstep.engine.loader import LoadedEngine
from dlstep.evaluate.answerer_pool import Answering
from dlstep.evaluate.checkpoint import read
from dlstep.evaluate.documents import documents_of
from dlstep.evaluate.metrics import Answers, Point, frontier, hypervolume
from dlstep.evaluate.options import EvalOptions
from dlstep.evaluate.runner import evaluate
from dlstep.evaluate.space import Space, TuneOptions, space_of
from dlstep.evaluate.tuning import ENOUGH, plan
from dlstep.extras import require
from dlstep.llm import LLM
from dlstep.views.progress_bars import TuningBar, tuning_bar

from . import entry

MODEL = {"model": "tiny-bd", "buffer_size": 4, "max_num_reqs": 256, "max_num_batched_tokens": 16384}
SPACES = {
    "40 values": ("accept_threshold=0.3:0.99:40",),
    "5 x 4 x 3": ("accept_threshold=0.3,0.5,0.7,0.9,0.99", "add_block_threshold=0.1,0.3,0.6,0.9", "buffer_size=1,2,4"),
}
PARTS = {
    "20 values": ("40 values", ("accept_threshold", slice(None, None, 2))),
    "5 x 4": ("5 x 4 x 3", ("buffer_size", slice(2, 3))),
}
SPEED, ACCURACY = 1.0, 0.5  # reference point of the hypervolume: one token per forward pass, half of the answers right
MARGIN = 0.01  # differences in hypervolume below this count as equal
PATIENCE = 6  # proposals per set of options, repeated ones included
OWN, GRID = "dlstep tune", "all problems"
Table = Mapping[StrategyOptions, Sequence[Answers]]  # the sums of each problem's answer
Chosen = tuple[list[StrategyOptions], int]  # sets of options, and the number of problems that each answers


@dataclass(frozen=True, slots=True)
class Row:
    """A method of choosing sets of options, over several orders of the problems.

    `area` and `worst_area` are the mean and the minimum share of the hypervolume that the whole
    grid has on held-out problems, `forwards` is the mean share of the grid's forward passes. `good`
    is False for the tuner if another method has a mean or worst area that is higher by `MARGIN`.
    """

    values: str
    sets: int
    method: str
    area: float
    worst_area: float
    forwards: float
    good: bool


def decoded(engine: LoadedEngine, over: Sequence[str], pool: int, folder: Path, show: TuningBar) -> tuple[Space, Table]:
    """Return the answers of every set of options to `pool` problems. Answers in `folder` are not
    decoded again."""
    space = space_of(over, engine.first.config, engine.first.strategy)
    grid = tuple(space.spread(space.size))
    options = EvalOptions(dataset_limit=pool, out=str(folder), grid=grid)
    show.begin(f"{space.size} sets of options", space.size * pool)
    evaluate(Answering(engine), options, {"shells": documents_of("shells", None, pool)}, show=show.answered)
    groups = read(folder).groups.values()
    return space, {each: [Answers.of(*pair) for pair in pairs] for each, pairs in zip(grid, groups, strict=True)}


def point(table: Table, options: StrategyOptions, problems: Sequence[int]) -> Point:
    """Return a set of options with its figures on some problems."""
    return Point(options, Answers.total(table[options][problem] for problem in problems))


def area(points: Sequence[Point]) -> float:
    """Return the hypervolume of points, relative to `SPEED` and `ACCURACY`."""
    return hypervolume(points, speed=SPEED, accuracy=ACCURACY)


def samplers() -> dict[str, Callable[[int], Any]]:
    """Return factories of Optuna's samplers by name, each called with a seed; QMC only if SciPy is
    installed."""
    from optuna import logging, samplers

    logging.set_verbosity(logging.ERROR)
    found = {
        "TPE": lambda seed: samplers.TPESampler(seed=seed),
        "NSGA-II": lambda seed: samplers.NSGAIISampler(population_size=8, seed=seed),
        "random": lambda seed: samplers.RandomSampler(seed=seed),
    }
    return found | ({"QMC": lambda seed: samplers.QMCSampler(seed=seed)} if find_spec("scipy") else {})


def sampled(space: Space, table: Table, sampler: Any, searched: Sequence[int], budget: float) -> Chosen:
    """Return the sets of options that a sampler proposes, each with `ENOUGH` problems, up to
    `budget` forward passes."""
    from optuna import create_study
    from optuna.distributions import IntDistribution

    study = create_study(directions=["maximize", "maximize"], sampler=sampler)
    axes: dict[str, Any] = {name: IntDistribution(0, len(values) - 1) for name, values in space.axes}
    tried: dict[StrategyOptions, Point] = {}
    problems, spent = min(ENOUGH, len(searched)), 0
    for _ in range(PATIENCE * space.size):
        trial = study.ask(axes)
        options = space.at([trial.params[name] for name in axes])
        if options not in tried:
            found = point(table, options, searched[:problems])
            spent += found.sums.forwards
            if tried and spent > budget:
                break
            tried[options] = found
        study.tell(trial, [tried[options].accuracy, tried[options].speed])
    return list(tried), problems


def methods(space: Space, table: Table, searched: Sequence[int], share: float, seed: int) -> Iterator[tuple[str, Chosen]]:
    """Yield the sets of options that each method tries with a share of the whole grid's forward
    passes."""
    tuning = TuneOptions(share=share)
    yield OWN, plan(space, tuning, len(searched))
    yield GRID, (space.spread(max(2, round(share * space.size))), len(searched))
    whole = sum(point(table, options, searched).sums.forwards for options in table)
    for name, sampler in samplers().items():
        yield name, sampled(space, table, sampler(seed), searched, share * whole)


def simulated(
    name: str, space: Space, table: Table, *, problems: int, held_out: int, orders: int, share: float
) -> Iterator[Row]:
    """Yield a row for each method, over several orders of the problems."""
    areas: dict[str, list[float]] = {}
    forwards: dict[str, list[float]] = {}
    for seed in range(orders):
        order = Random(seed).sample(range(len(next(iter(table.values())))), problems + held_out)
        searched, held = order[:problems], order[problems:]
        best = area([point(table, options, held) for options in table])
        whole = sum(point(table, options, searched).sums.forwards for options in table)
        for method, (sets, count) in methods(space, table, searched, share, seed):
            tried = [point(table, options, searched[:count]) for options in sets]
            found = [point(table, each.options, held) for each in frontier(tried)]
            areas.setdefault(method, []).append(area(found) / best)
            forwards.setdefault(method, []).append(sum(each.sums.forwards for each in tried) / whole)
    rows = [
        Row(name, space.size, method, fmean(each), min(each), fmean(forwards[method]), True) for method, each in areas.items()
    ]
    mine, *others = rows
    good = all(mine.area > other.area - MARGIN and mine.worst_area > other.worst_area - MARGIN for other in others)
    yield from (replace(mine, good=good), *others)


def measure_tuner(out: str, **options: Any) -> Iterator[Row]:
    """Yield the rows of every space, reusing answers in the folder `out`, if given.

    Raises ValueError for an option out of range.
    """
    require("python -m benchmarks.tuner", "tune")
    for name in ("problems", "held_out", "orders"):
        if options[name] < 1:
            raise ValueError(f"--{name} must be at least 1, got {options[name]}")
    engine, pool = LLM(**MODEL).engine, options["problems"] + 2 * options["held_out"]
    with nullcontext(out) if out else TemporaryDirectory() as folder, tuning_bar(enabled=True) as show:
        tables = {name: decoded(engine, over, pool, Path(folder, name.replace(" ", "")), show) for name, over in SPACES.items()}
    for name, (whole, (axis, part)) in PARTS.items():
        space, table = tables[whole]
        smaller = Space(tuple([(each, values[part] if each == axis else values) for each, values in space.axes]))
        tables[name] = smaller, {options: table[options] for options in smaller.spread(smaller.size)}
    for name in sorted(tables, key=lambda name: (len(tables[name][0].axes), tables[name][0].size)):
        yield from simulated(name, *tables[name], **options)


COLUMNS = ("values", "sets", "method", "area", "worst_area", "forwards", "good")

if __name__ == "__main__":
    entry.run(
        __doc__,
        measure_tuner,
        COLUMNS,
        problems=(200, "Problems of the search."),
        held_out=(200, "Held-out problems, on which the results are measured."),
        orders=(20, "Orders of the problems."),
        share=(0.2, "Share of the grid's forward passes that each method may use."),
        out=("", "Keep the answers in this folder, and resume there."),
    )
