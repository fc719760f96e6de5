"""The tuner against the grid that it saves: how much of the forwards it takes, and how much of the frontier it finds."""

from collections.abc import Iterator, Sequence as Items
from dataclasses import dataclass
from pathlib import Path

from ..core.options import StrategyOptions
from ..engine import Engine
from ..evaluate.crews import Alone
from ..evaluate.documents import documents_of
from ..evaluate.frontier import Point, hypervolume
from ..evaluate.metrics import Answers
from ..evaluate.options import EvalOptions
from ..evaluate.runner import evaluate
from ..evaluate.runs import read
from ..evaluate.tune_options import TuneOptions
from ..evaluate.tuning import Show, tune

MODEL = {"model": "tiny-bd", "buffer_size": 4, "max_num_reqs": 256, "max_num_batched_tokens": 16384}
OVER = ("accept_threshold=0.3,0.5,0.7,0.9,0.99", "add_block_threshold=0.1,0.3,0.6,0.9")
MOST_FORWARDS = 0.25  # of the grid's
LEAST_AREA = 0.97  # of the grid's best
SPEED, ACCURACY = 1.0, 0.5  # where the area begins: one token a forward, half of the answers right


@dataclass(frozen=True, slots=True)
class Row:
    """A search beside the whole grid, over the same problems, both measured on the same held-out ones.

    `forwards` are those of the search, `grid_forwards` those of every set of options with all of its problems. `area` is the
    held-out hypervolume of the frontier that was found, `grid_area` that of all sets of the grid, which is the best there is.
    """

    seed: int
    sets: int
    problems: int
    held_out: int
    forwards: int
    grid_forwards: int
    forwards_share: float
    area: float
    grid_area: float
    area_share: float
    good: bool


def measure_tuner(
    engine: Engine, seeds: Items[int], folder: Path, show: Show, *, problems: int, held_out: int, over: Items[str] = OVER
) -> Iterator[Row]:
    """A row for each seed of the problems. Answers are kept in `folder`; what it holds is not decoded again."""
    for seed in seeds:
        options = EvalOptions(problem_seed=seed, dataset_limit=problems + held_out, out=str(folder / f"search-{seed}"))
        documents = {"shells": documents_of("shells", None, options.dataset_limit, seed=seed)}
        asked = TuneOptions(over=tuple(over), problems=problems, held_out=held_out, resume=True)
        tuned = tune(Alone(engine), options, asked, documents, show=show)
        sets = tuple(tuned.space.at(place) for place in tuned.space.coarse(tuned.space.size))
        grid = EvalOptions(problem_seed=seed, dataset_limit=options.dataset_limit, out=str(folder / f"grid-{seed}"), grid=sets)
        show.begin(f"seed {seed}: the whole grid, {len(sets)} sets", len(sets) * (problems + held_out))
        evaluate(Alone(engine), grid, documents, show=show.answered)
        searched, held = parted(Path(grid.out), sets, problems)
        area = hypervolume(tuned.held, speed=SPEED, accuracy=ACCURACY)
        best = hypervolume(held, speed=SPEED, accuracy=ACCURACY)
        whole = sum(point.sums.forwards for point in searched)
        forwards_share, area_share = tuned.forwards / whole, area / best if best else 1.0
        yield Row(
            seed, len(sets), problems, held_out, tuned.forwards, whole, forwards_share, area, best, area_share,
            forwards_share <= MOST_FORWARDS and area_share >= LEAST_AREA,
        )  # fmt: skip


def parted(folder: Path, sets: Items[StrategyOptions], problems: int) -> tuple[list[Point], list[Point]]:
    """Each set of options of a run on the problems of the search, and on those that are held out."""
    groups = list(read(folder).groups.values())
    searched, held = list[Point](), list[Point]()
    for options, pairs in zip(sets, groups, strict=True):
        early = [Answers.of(*pair) for pair in pairs if pair[0]["document"] < problems]
        late = [Answers.of(*pair) for pair in pairs if pair[0]["document"] >= problems]
        searched.append(Point(options, Answers.total(early)))
        held.append(Point(options, Answers.total(late)))
    return searched, held
