"""The run of a tuner: a crew answers the rounds of a search; what is found is measured on held-out problems.

`answers.jsonl` has a line for each answer, in the order in which they came, and is all that a search needs to go on.
"""

import json
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence as Items
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, Protocol

from ..chat import Message
from ..core.options import StrategyOptions
from ..json_lines import append, opened, sealed
from ..run_lock import RunLock
from .checkpoint import ANSWERS, KEY_FIELDS, begin, key_of, sealed_lines
from .crews import Crew
from .documents import Document
from .frontier import Point, frontier, knee
from .items import Item, Key, options_text, prompt_of
from .metrics import Answers
from .options import EvalOptions
from .proposals import MOST_AXES, Sampled, check_optuna
from .runner import Running, check, key_of_run, scorers_for
from .search import Bisection, Budget, Proposals, Space, rounds
from .space import space_of
from .tune_options import TuneOptions

MOST_PROBLEMS = 200  # of a search, and held out, where nothing is said
LEAST_FIRST, MOST_FIRST = 8, 25  # of a first round
COUNTS = ("tokens", "steps", "forwards")
FIELDS = KEY_FIELDS | {"score": float, "finish": str} | dict.fromkeys(COUNTS, int)


class Show(Protocol):
    """Shows what a search is doing."""

    def begin(self, what: str, total: int) -> None:
        """A part with `total` answers begins."""
        ...

    def answered(self, done: int, score: float) -> None:
        """So many answers of the whole run have been scored, with this sum of scores."""
        ...


class Silent:
    """Shows nothing."""

    def begin(self, what: str, total: int) -> None:
        """Nothing."""

    def answered(self, done: int, score: float) -> None:
        """Nothing."""


@dataclass(frozen=True, slots=True)
class Tuned:
    """The result of a search. `line` is its frontier, the slowest first, and `held` the same sets on held-out problems.

    `tried` are all sets of options with all their answers. `share` is the share of the forwards that the search took of those
    of the whole grid, which is estimated from the sets that were tried.
    """

    space: Space
    tried: tuple[Point, ...]
    line: tuple[Point, ...]
    held: tuple[Point, ...]
    chosen: Point
    rounds: int
    problems: int
    forwards: int
    share: float

    @property
    def chosen_held(self) -> Point:
        """The chosen set on held-out problems."""
        return next(point for point in self.held if point.options == self.chosen.options)


class Store:
    """The answers so far, and the file that they are added to."""

    def __init__(self, folder: Path) -> None:
        self.answers: dict[Key, Answers] = {}
        path = folder / ANSWERS
        for _, said in sealed_lines(path, FIELDS):
            self.answers[key_of(said)] = sums_of(said)
        self._file = opened(path)

    def note(self, place: int, row: Mapping[str, Any], beside: Mapping[str, Any]) -> None:
        """Write an answer, in one line."""
        del place
        line = {name: row[name] for name in (*KEY_FIELDS, "score", "steps", "finish", "error", "found")}
        line |= {"tokens": len(row["tokens"]), "forwards": beside["forwards"]}
        append(self._file, sealed(line))
        self.answers[key_of(line)] = sums_of(line)

    def note_work(self, task: str, work: Mapping[str, Any]) -> None:
        """Nothing: the forwards of a search are shared by many sets of options."""

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def sums_of(line: Mapping[str, Any]) -> Answers:
    """The sums of one answer."""
    numbers = {name: line[name] for name in COUNTS}
    return Answers.counted(score=line["score"], **numbers, failed=line["finish"] in ("rejected", "error", "abort"))


Problem = tuple[str, Document, str | tuple[Message, ...]]  # task, document, prompt


def problems_of(options: EvalOptions, documents: Mapping[str, list[Document]]) -> list[Problem]:
    """The problems of all tasks, one of each in turn, so that any number of first ones has some of each."""
    turns = zip_longest(*([(task, document) for document in found] for task, found in documents.items()))
    return [(task, document, prompt_of(task, document, options)) for turn in turns for task, document in filter(None, turn)]


def parted(problems: Items[Problem], tune: TuneOptions) -> tuple[Items[Problem], Items[Problem]]:
    """The problems of the search, and those that are held out. Raises ValueError where there are too few."""
    count = len(problems)
    if count < 2:
        raise ValueError(f"the tasks have {count} problem, and tuning needs some to search with and others to be held out")
    half = (count + 1) // 2 if tune.held_out is None else count - tune.held_out
    searched = tune.problems or max(1, min(half, MOST_PROBLEMS))
    held = tune.held_out or min(count - searched, MOST_PROBLEMS)
    if held < 1 or searched + held > count:
        raise ValueError(
            f"--problems {searched} and --held_out {max(held, 1)} are more than the {count} problems that there are: "
            "give fewer, or a larger --dataset_limit"
        )
    return problems[:searched], problems[searched : searched + held]


class Tuning:
    """A search under way: which answers it has, and who gives the others."""

    def __init__(self, running: Running, store: Store, items: list[Item], options: EvalOptions, show: Show) -> None:
        self._running, self._store, self._items = running, store, items
        self._options, self._show = options, show

    def known(self, problems: Items[Problem], sets: Items[StrategyOptions]) -> dict[StrategyOptions, list[Answers]]:
        """The answers of each set of options, problem by problem, up to the first that lacks one."""
        found: dict[StrategyOptions, list[Answers]] = {}
        for options in sets:
            text, each = options_text(dict(options)), list[Answers]()
            for task, document, _ in problems:
                answer = self._store.answers.get((task, document.number, text))
                if answer is None:
                    break
                each.append(answer)
            found[options] = each
        return found

    def answer(self, what: str, problems: Items[Problem], sets: Items[StrategyOptions]) -> None:
        """Answer each of the problems with each set of options, unless that is known."""
        begin = len(self._items)
        for options in sets:
            text = options_text(dict(options))
            params = {task: self._options.params(task, options) for task in self._options.tasks}
            asked: Counter[object] = Counter()
            for task, document, prompt in problems:
                same = (task, prompt if isinstance(prompt, str) else tuple(turn["content"] for turn in prompt))
                if (task, document.number, text) not in self._store.answers:
                    self._items.append(Item(task, document, prompt, params[task], asked[same]))
                asked[same] += 1
        self._show.begin(what, len(self._items) - begin)
        self._running.answer(self._options.tasks[0], deque(range(begin, len(self._items))))


def tune(
    crew: Crew,
    options: EvalOptions,
    tuning: TuneOptions,
    documents: Mapping[str, list[Document]],
    *,
    told: Mapping[str, Any] | None = None,
    show: Show | None = None,
) -> Tuned:
    """Search, and measure what was found on held-out problems; answers that `options.out` holds are not asked for again.

    Raises ValueError for options that cannot be varied, a folder with another search, and a search without a right answer.
    """
    about, folder, show = crew.about, Path(options.out), show or Silent()
    space = space_of(tuning.over, about.config, about.strategy)
    searched, held = parted(problems_of(options, documents), tuning)
    tuning = replace(tuning, first=tuning.first or min(MOST_FIRST, max(LEAST_FIRST, len(searched) // 8)))
    propose = proposals_of(space, tuning)
    check(about, options)
    check_folder(folder, tuning)
    with scorers_for(options) as scorers, closing(RunLock(folder)):
        key = key_of_run(options, documents, about) | {"tune": key_of_tune(space, tuning, len(searched), len(held))}
        begin(folder, {"key": key, "told": dict(told or {}), "machines": [about.machine]})
        store = Store(folder)
        try:
            items: list[Item] = []
            running = Running(crew, scorers, store, items, show.answered)
            return found_by(Tuning(running, store, items, options, show), space, tuning, searched, held, propose)
        finally:
            store.close()


def key_of_tune(space: Space, tuning: TuneOptions, searched: int, held: int) -> dict[str, Any]:
    """All that a search depends on, beside its answers."""
    over = {name: list(values) for name, values in space.axes}
    budget = {"problems": searched, "held_out": held, "first": tuning.first, "share": tuning.share}
    return {"over": over} | budget | ({"trials": tuning.trials} if len(over) > MOST_AXES else {})


def check_folder(folder: Path, tuning: TuneOptions) -> None:
    """Raise ValueError for a folder with answers, unless the search in it is to go on."""
    path = folder / ANSWERS
    if not tuning.resume and path.exists() and path.stat().st_size:
        raise ValueError(f"--out {folder} holds a search or a run: --resume goes on with a search, or give another folder")


def proposals_of(space: Space, tuning: TuneOptions) -> Callable[[Space], Proposals]:
    """Who proposes sets of options: a grid and what lies between, or for many options Optuna."""
    if len(space.axes) <= MOST_AXES:
        return Bisection
    check_optuna(f"--over with {len(space.axes)} options")
    return lambda space: Sampled(space, trials=tuning.trials)


def found_by(
    tuning: Tuning,
    space: Space,
    options: TuneOptions,
    searched: Items[Problem],
    held: Items[Problem],
    propose: Callable[[Space], Proposals],
) -> Tuned:
    """Round after round until nothing is missing, then the frontier on held-out problems."""
    assert options.first is not None, "filled in"
    budget = Budget(options.first, len(searched), options.share)
    sets: dict[StrategyOptions, None] = {}
    while True:
        known = tuning.known(searched, [*sets])
        found = rounds(space, budget, known, propose)
        last = found[-1]
        if not last.missing:
            break
        new = [each for each in last.tried if each not in sets]
        sets |= dict.fromkeys(last.tried)
        if new:
            continue  # they may have answers of an earlier run
        what = f"round {len(found)}: {len(last.tried)} sets, {last.problems} problems"
        tuning.answer(what, searched[: last.problems], last.missing)
    tried = tuple([Point(each, Answers.total(known[each])) for each in sets])
    line = frontier([Point(each, Answers.total(known[each][: last.problems])) for each in last.tried])
    if not any(point.accuracy > 0 for point in tried):
        raise ValueError(
            f"no answer of {sum(point.sums.count for point in tried)} was right, so nothing can be chosen: look at the answers "
            "of `dlstep eval` and `dlstep report` first"
        )
    best = [point.options for point in line]
    tuning.answer(f"held out: {len(best)} sets, {len(held)} problems", held, best)
    results = tuning.known(held, best)
    forwards = sum(point.sums.forwards for point in tried)
    early = [Answers.total(known[each][: found[0].problems]) for each in found[0].tried]
    usual = sum(sums.forwards_per_answer for sums in early) / len(early)
    return Tuned(
        space,
        tried,
        tuple(line),
        tuple([Point(each, Answers.total(results[each])) for each in best]),
        chosen_of(line, options.at_least),
        len(found),
        last.problems,
        forwards,
        forwards / max(1.0, space.size * len(searched) * usual),
    )


def chosen_of(line: Items[Point], at_least: float | None) -> Point:
    """The knee of a frontier, or its fastest point with a share of the best accuracy."""
    if at_least is None:
        return knee(line)
    best = max(point.accuracy for point in line)
    return [point for point in line if point.accuracy >= at_least * best][-1]


def as_json(tuned: Tuned) -> dict[str, Any]:
    """The result as plain values."""

    def row(point: Point, held: Point) -> dict[str, Any]:
        return {
            "options": dict(point.options),
            "problems": point.sums.count,
            "accuracy": point.accuracy,
            "tokens_per_forward": point.speed,
            "held_out_problems": held.sums.count,
            "held_out_accuracy": held.accuracy,
            "held_out_accuracy_error": held.sums.accuracy_error,
            "held_out_tokens_per_forward": held.speed,
            "chosen": point == tuned.chosen,
        }

    rows = [row(point, held) for point, held in zip(tuned.line, tuned.held, strict=True)]
    return {
        "frontier": rows,
        "chosen": dict(tuned.chosen.options),
        "tried": len(tuned.tried),
        "sets": tuned.space.size,
        "rounds": tuned.rounds,
        "forwards": tuned.forwards,
        "share": tuned.share,
    }


def text_of(options: StrategyOptions) -> str:
    """Options in few words."""
    return " ".join(f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in options)
